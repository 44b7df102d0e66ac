"""How a slice work is run: Spark's micro-batches, resident Spark tasks, or this process."""
