"""With a long table, topics are found and messages read by the index (topic, id)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.topic_store.places import SqlPlace

INDEX = "index_kafka_messages_on_topic_and_id"
FILL = """
INSERT INTO kafka_messages (topic, key, message)
SELECT 't' || n % 3, convert_to('k' || n % 100, 'UTF8'), convert_to(repeat('x', 100), 'UTF8')
FROM generate_series(1, 50000) AS n
"""


@pytest.fixture
def long_place(postgres_url: str) -> Iterator[SqlPlace]:
    """50,000 messages of three topics on PostgreSQL."""
    with ExitStack() as stack:
        place = SqlPlace(postgres_url, stack)
        place.database.execute(FILL.replace("%", "%%"))
        place.database.execute("ANALYZE kafka_messages")
        yield place


@pytest.mark.parametrize("name", ["topics", "read"])
def test_statements_use_the_index(long_place: SqlPlace, name: str) -> None:
    store = long_place.store()
    assert len(store.topics()) == 3
    assert len(store.read("t1", 1000).rows) == 1000
    parameters = {"topic": "t1", "limit": 1000, "most": 60_000, "outbox": "kafka_messages"}
    rows = long_place.database.execute(f"EXPLAIN {store._statements[name]}", parameters).rows
    plan = "\n".join(line for (line,) in rows)
    assert INDEX in plan
    assert "Seq Scan on kafka_messages" not in plan
    assert "Sort" not in plan
