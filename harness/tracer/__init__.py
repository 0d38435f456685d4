"""What runs inside an environment to trace a script: a recorder of PyTorch's operators, and their replay.

It needs Python 3.8 or newer, the standard library and torch. `python -m tracer` is its only entry.
"""
