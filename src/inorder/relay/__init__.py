"""Database to Kafka: claim a batch, publish it in order, settle it, repeat while owner."""
