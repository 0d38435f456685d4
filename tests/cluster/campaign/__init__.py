"""Faults of a cluster: matrices on four nodes of Slurm on this machine, several faults in each.

`python -m tests.cluster.campaign --count 200 --seed 1 --rounds-of 8 --out results.jsonl` draws the faults, each from
the seed and its own number. A round is one matrix: its faults are made one after another, the command is typed again
until it is done, and then everything is checked.
"""
