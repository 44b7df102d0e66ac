"""The states of topics in every database."""
