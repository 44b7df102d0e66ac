"""From the topic into the store: collapse, transition, statements, the slice; quarantine and expiry."""
