"""What the relay reads, writes and holds: outbox tables, leases, Kafka logs."""
