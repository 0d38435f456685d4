"""Sweeps: which setting of a kernel's tunables is fastest, of those that are right everywhere.

`space` says which settings there are and makes matrices of them, `searching` which are tried next, `measuring` reads
times off a run's records and says what they amount to, `running` makes the runs, `writing` changes matrix.yaml. All
but `running` and `command` are pure.
"""
