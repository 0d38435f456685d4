"""Experiments: each holds every factor fixed but one, and records what happened. They judge no cause.

They are planned from what the first pass saw (`planning`, `screening`), so that a healthy matrix pays nothing for them.
"""
