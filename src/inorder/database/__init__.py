"""Databases: connecting, dialects, error codes to our errors, transactions, named SQL."""
