"""Who should try to own the outbox: decides from what it is told, and never more than a hint."""
