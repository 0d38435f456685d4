"""Bisection: the first of the releases between two at which a kernel or a reference differs.

`releases` says which there are, `planning` which one is next, `oracle` whether two differ, `observing` reads what was
seen off a run's records, and `running` makes the runs. The first three are pure.
"""
