"""Bisection: the first of the releases between two at which a kernel or a reference differs.

`releases` says which there are, `subject` what is run, `observe` reads a run's records, `steps` says which release is
next and where something changed, and `run` makes the runs.
"""
