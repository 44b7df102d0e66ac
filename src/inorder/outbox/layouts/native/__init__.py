"""A record as it will be sent, one row each, in the order of `id`; removed once Kafka has it."""
