"""Rules: one function for each way to recognise a cause. A rule reads facts, and knows of no other rule."""
