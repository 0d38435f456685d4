"""Bisection: the first of the releases between two at which a kernel or a reference differs.

`releases` says which there are, `plan` which one is next, `oracle` whether two differ, `observe` reads a run's records,
and `run` makes the runs. The first three are pure.
"""
