"""The states of all topics with generations, in the database: the authority on where messages go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from inorder.database.database import Database, Dialect, Installed, open_database, statements_of
from inorder.settings import Settings
from inorder.topics.generations import Generation, Pointers, TopicState, decode, encode


class SqlTopicGenerations:
    """A row a topic, changed by compare-and-set on its epoch; makes its table at the first call."""

    def __init__(self, database: Database) -> None:
        self._database = Installed(database, generation_tables(database.dialect))
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
        """Writes the state if the one before it is there."""
        values = {
            "topic": state.topic,
            "epoch": state.epoch,
            "phase": str(state.phase),
            "generation": state.current.number,
            "state": encode(state),
        }
        statement = self._statements["insert" if state.epoch == 1 else "replace"]
        return self._database.execute(statement, values).count == 1

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
        self._database.close()


def generation_tables(dialect: Dialect) -> list[str]:
    """The DDL of the table."""
    return statements_of("inorder.topics", dialect, "topic_generations.sql").starting_with("install")


# The pointers of all pipelines: read for the gate of generations, and begun with a generation's number.


class SqlPointers:
    """The pointer rows of one database; there may be none, nor a table of them."""

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

    def begin(self, pipeline: str, generation: Generation) -> None:
        """Makes the pointer rows of a generation, at its beginning, unless they are there; the table must be."""
        values = {"pipeline": pipeline, "topic": generation.topic, "generation": generation.number}
        with self._database.transaction() as transaction:
            for partition in range(generation.partitions):
                transaction.execute(self._statements["begin"], {**values, "partition": partition})

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
        self._database.close()


# Split from inorder.operate.topics.

NAME = "inorder topics"


def open_generations(settings: Settings) -> SqlTopicGenerations:
    """The authority, in the database of the outbox."""
    return SqlTopicGenerations(open_database(settings.database.require_url(), NAME))
