"""Verifies a running installation from outside: marked events in, what arrived out, and a verdict on the history."""
