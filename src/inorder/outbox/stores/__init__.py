"""The tables and topics that an outbox is kept in."""
