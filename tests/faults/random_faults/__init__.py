"""Random faults: a small matrix is disturbed once, at a random moment, and the same command is then started again.

`python -m tests.faults.random_faults --count 60 --seed 1` draws the faults, each from the seed and its own number, so
that one of them can be repeated alone (`--only 17`), and says of each what came of it.
"""
