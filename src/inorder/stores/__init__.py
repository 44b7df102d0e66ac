"""Databases behind the ports: one folder a dialect, SQL in named files."""
