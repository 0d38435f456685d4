"""Many runs: an index of those that are finished, and where over time a value stepped."""
