"""Where journals are kept: Kafka topics, PostgreSQL, Cassandra."""
