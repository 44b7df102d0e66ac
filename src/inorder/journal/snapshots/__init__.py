"""What journals came to, kept in rings, each for one life of its journal."""
