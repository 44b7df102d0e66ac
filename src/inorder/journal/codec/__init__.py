"""From actions to records of Kafka and back, bit for bit as Kafka Journal writes them."""
