"""Journals: actions on a topic, read back by joining a replicated store with what of the topic is not in it yet."""
