"""SQLite behind the ports, for development."""
