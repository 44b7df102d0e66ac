"""Cassandra behind the ports of the journal."""
