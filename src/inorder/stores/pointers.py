"""The pointers of all pipelines: read for the gate of generations, and begun with a generation's number."""

from __future__ import annotations

from collections import defaultdict

from inorder.ports.topic_generations import Generation, Pointers
from inorder.stores.database import Database, statements_of


class SqlPointers:
    """The pointer rows of one database; there may be none, nor a table of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = statements_of(database.dialect, "pointers.sql")

    def of_topic(self, topic: str) -> dict[str, Pointers]:
        """By pipeline, how far each partition of a Kafka topic is applied."""
        if not self._database.execute(self._statements["exists"]).rows:
            return {}
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for pipeline, partition, next_offset in self._database.execute(
            self._statements["of_topic"], {"topic": topic}
        ).rows:
            found[pipeline][partition] = next_offset
        return dict(found)

    def begin(self, pipeline: str, generation: Generation) -> None:
        """Makes the pointer rows of a generation, at its beginning, unless they are there; the table must be."""
        values = {"pipeline": pipeline, "topic": generation.topic, "generation": generation.number}
        with self._database.transaction() as transaction:
            for partition in range(generation.partitions):
                transaction.execute(self._statements["begin"], {**values, "partition": partition})

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
        self._database.close()
