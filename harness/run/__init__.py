"""Run what a plan says: prepare, build, validate, compare, launch, in the order of `workflow`."""
