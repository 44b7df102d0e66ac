"""How a writer wakes a relay that sleeps, where the database can carry the call."""
