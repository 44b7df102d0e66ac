"""Reading a journal: the store's events joined with what the log has beyond them."""
