"""Specimens: kernels and set-ups whose true cause is known, to find out how often the attribution is right.

csrc/specimens/README.md says what one is and how to write one.
"""
