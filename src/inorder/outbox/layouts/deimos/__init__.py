"""Deimos' two tables, taken over as they are: messages as raw bytes, and one lock row a topic beside them."""
