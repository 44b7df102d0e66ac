"""The clients of the verification: its connections to the database and its own Kafka consumer."""
