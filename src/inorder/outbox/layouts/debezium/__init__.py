"""The table of Debezium's outbox event router, with one more column that gives its rows an order."""
