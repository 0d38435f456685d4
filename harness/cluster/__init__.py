"""One matrix on many machines: it is cut into shards, an engine runs them, and their records become one run."""
