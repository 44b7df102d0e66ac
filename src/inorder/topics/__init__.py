"""The generations of a topic: switching to another Kafka topic, following the switch, and reading across it."""
