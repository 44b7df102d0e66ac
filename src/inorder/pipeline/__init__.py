"""Kafka to tables: one slice, one transaction."""
