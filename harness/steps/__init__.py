"""The steps of a run: build, store, validate, launch. Each turns a plan's entry into one record.

A step never raises for what a candidate did: that is a status and a message in its record.
"""
