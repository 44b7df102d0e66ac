"""The database's part of a switch: the states of all topics, which are authoritative, and the pointers of pipelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from inorder.database.database import Database, Dialect, InstallingDatabase, statements_of
from inorder.engines.slice_work import Pointer
from inorder.topics.generations import CopiedTopics, Generation, Pointers, TopicState, decode, encode


class SqlTopicGenerations:
    """One row per topic, changed by compare-and-set on its epoch; creates its table at the first call."""

    def __init__(self, database: Database) -> None:
        self._database = InstallingDatabase(database, generation_tables(database.dialect))
        self._statements = statements_of("inorder.topics", database.dialect, "topic_generations.sql")

    def read(self, topic: str) -> TopicState | None:
        """The state of one topic, if it was ever switched."""
        rows = self._database.execute(self._statements["read"], {"topic": topic}).rows
        return decode(rows[0][0]) if rows else None

    def read_all(self) -> Sequence[TopicState]:
        """All states, in the order of their names."""
        found = [decode(row[0]) for row in self._database.execute(self._statements["read_all"]).rows]
        return sorted(found, key=lambda state: state.topic)

    def replace(self, state: TopicState) -> bool:
        """Writes the state if the previous one is there."""
        values = {
            "topic": state.topic,
            "epoch": state.epoch,
            "phase": str(state.phase),
            "generation": state.current.number,
            "state": encode(state),
        }
        statement = self._statements["insert" if state.epoch == 1 else "replace"]
        return self._database.execute(statement, values).count == 1

    def read_copies(self, destination: str) -> dict[str, CopiedTopics]:
        """Which topics were copied into one, by the name of each source."""
        rows = self._database.execute(self._statements["read_copies"], {"destination": destination}).rows
        return {source: CopiedTopics(*ids) for source, *ids in rows}

    def adopt_copy(self, source: str, destination: str, held: CopiedTopics) -> CopiedTopics:
        """Records which topics are copied, unless that is known; returns what is recorded then."""
        bound = {"source": source, "destination": destination, **held._asdict()}
        self._database.execute(self._statements["insert_copy"], bound)
        return self.read_copies(destination)[source]

    def accept_copy(self, source: str, destination: str, held: CopiedTopics) -> None:
        """Records other topics of these names."""
        bound = {"source": source, "destination": destination, **held._asdict()}
        self._database.execute(self._statements["set_copy"], bound)

    def close(self) -> None:
        """Closes the connection; may be called twice."""
        self._database.close()


def generation_tables(dialect: Dialect) -> list[str]:
    return statements_of("inorder.topics", dialect, "topic_generations.sql").starting_with("install")


class StoredPointer(NamedTuple):
    """A pointer row of a pipeline."""

    topic: str
    partition: int
    pointer: Pointer


class SqlPointers:
    """The pointer rows of all pipelines in one database; the table may be missing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = statements_of("inorder.topics", database.dialect, "pointers.sql")

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

    def of_pipeline(self, pipeline: str) -> list[StoredPointer]:
        """All pointers of a pipeline; the table must be of this version."""
        rows = self._database.execute(self._statements["of_pipeline"], {"pipeline": pipeline}).rows
        return [StoredPointer(topic, number, Pointer(*rest)) for topic, number, *rest in rows]

    def close_generation(self, generation: Generation) -> None:
        """Writes the ends of a closed generation into the pointers of all pipelines, unless they are there.

        A table of version 0.1.0 has no place for them; no task that looks for them has used it.
        """
        if generation.ends is None or not self._database.execute(self._statements["has_ends"]).rows:
            return
        bound: dict[str, object] = {"topic": generation.topic, "count": len(generation.ends)}
        with self._database.transaction() as transaction:
            for partition, end in enumerate(generation.ends):
                row = bound | {"partition": partition, "end": end}
                transaction.execute(self._statements["close_partition"], row)
            transaction.execute(self._statements["close_others"], bound)

    def begin(self, pipeline: str, generation: Generation, number: int | None = None) -> None:
        """Creates the pointer rows of a generation, at its beginning, unless they exist; the table must exist.

        `number` is the generation in the versions of its rows, where it is not that of the topic.
        """
        number = generation.number if number is None else number
        values = {"pipeline": pipeline, "topic": generation.topic, "generation": number}
        with self._database.transaction() as transaction:
            for partition in range(generation.partitions):
                transaction.execute(self._statements["begin"], {**values, "partition": partition})

    def close(self) -> None:
        """Closes the connection; may be called twice."""
        self._database.close()
