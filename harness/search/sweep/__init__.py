"""Sweeps: which setting of a kernel's tunables is fastest, of those that are correct everywhere.

`space` says which settings there are and makes matrices of them, `sampler` which are tried next, `measure` reads times
off a run's records, `run` makes the runs, `write` changes matrix.yaml. All but `run` and `write` are pure.
"""
