"""Fault cases: kernels and set-ups whose true cause is known, to measure how often the attribution is right.

README.md says what one is, how to run them, and how to add one.
"""
