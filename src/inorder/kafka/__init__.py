"""The only room that knows the Kafka client."""
