"""Facts: what the records say, typed, each computed once. Nothing here decides on a cause."""
