"""The states of all topics with generations, in the database: the authority on where messages go."""

from __future__ import annotations

from collections.abc import Sequence

from inorder.ports.topic_generations import TopicState
from inorder.stores.database import Database, Dialect, Installed, statements_of
from inorder.topics.codec import decode, encode


class SqlTopicGenerations:
    """A row a topic, changed by compare-and-set on its epoch; makes its table at the first call."""

    def __init__(self, database: Database) -> None:
        self._database = Installed(database, install_statements(database.dialect))
        self._statements = statements_of(database.dialect, "topic_generations.sql")

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


def install_statements(dialect: Dialect) -> list[str]:
    """The DDL of the table."""
    return statements_of(dialect, "topic_generations.sql").starting_with("install")
