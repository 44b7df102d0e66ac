"""Switching topics on real servers."""
