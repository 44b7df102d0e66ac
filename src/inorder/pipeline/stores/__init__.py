"""Target tables, their pointers and dead letters, and the topics that are written back to."""
