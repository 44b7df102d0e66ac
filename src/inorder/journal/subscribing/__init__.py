"""Reading all journals of a topic as one stream, with checkpoints."""
