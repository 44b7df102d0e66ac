"""Whether the store shows what the topic says."""
