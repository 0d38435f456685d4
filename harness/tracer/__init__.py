"""What runs inside an environment to trace a script: a recorder of PyTorch's operators, and their replay.

Python 3.8 and newer, the standard library and torch alone. `python -m tracer REQUEST.json` is its only entry.
"""
