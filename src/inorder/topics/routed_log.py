"""A shard's log that follows the generations of its topics: callers know names, the log knows Kafka topics.

Rows of a topic that is closed for a switch are refused as rows of a topic that is away for a moment, so that relay and
publisher let that topic wait and go on with all others. Taking over reads the routes behind the inner log's fence,
which is what the switch relies on (`switch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Protocol

from inorder.model.errors import TopicSwitchingError, TopicUnavailableError, TransientError
from inorder.model.partition import Partitioner
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.shard_log import ShardLog
from inorder.topics.routes import Routes, RouteTable

Partitioners = MutableMapping[str, Partitioner]
"""By Kafka topic: a generation gets the partitioner of its topic when it is first written to."""


class UnfencedLog(ShardLog, Protocol):
    """A log that may still have a batch under way when `publish` raises; see `kafka/idempotent_log.py`."""

    in_doubt: frozenset[int]

    @property
    def is_under_way(self) -> bool: ...

    def give_up(self) -> frozenset[int]: ...


class RoutedShardLog:
    """A `ShardLog` around a fenced one."""

    def __init__(self, log: ShardLog, routes: Routes, partitioners: Partitioners) -> None:
        """`partitioners` must be the very mapping that the inner log looks into."""
        self._log = log
        self._routes = routes
        self._partitioners = partitioners

    def take_over(self) -> bytes | None:
        """Takes over, and then asks where to write."""
        marker = self._log.take_over()
        self._routes.fresh()
        return marker

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Publishes the rows to where their topics are now."""
        self._send(rows, marker, self._routes.for_topics(row.topic for row in rows))

    def close(self) -> None:
        """Closes the log and the connection of the routes."""
        self._log.close()
        self._routes.close()

    def _send(self, rows: Sequence[OutboxRow], marker: bytes, table: RouteTable) -> None:
        if not table.moved and not table.closed:
            self._log.publish(rows, marker)
            return
        moved = routed(rows, table)
        for topic, target in moved.items():
            if topic in self._partitioners:
                self._partitioners[target] = self._partitioners[topic]
        sent = [row._replace(topic=moved[row.topic]) for row in rows]
        try:
            self._log.publish(sent, marker)
        except TopicUnavailableError as error:
            error.topic = next((topic for topic, target in moved.items() if target == error.topic), error.topic)
            raise


class RoutedUnfencedLog(RoutedShardLog):
    """The same around an unfenced log: a batch that is under way to where its topic is no more is given up."""

    def __init__(self, log: UnfencedLog, routes: Routes, partitioners: Partitioners) -> None:
        super().__init__(log, routes, partitioners)
        self._unfenced = log
        self._under_way: RouteTable | None = None

    @property
    def in_doubt(self) -> frozenset[int]:
        """Rows of the last failure that may have arrived all the same."""
        return self._unfenced.in_doubt

    @in_doubt.setter
    def in_doubt(self, ids: frozenset[int]) -> None:
        self._unfenced.in_doubt = ids

    def take_over(self) -> bytes | None:
        """Begins; without a fence there is nothing behind which to ask, so `publish` does."""
        return self._log.take_over()

    def give_up(self) -> frozenset[int]:
        """Drops the batch that is under way; returns what has arrived of it."""
        return self._unfenced.give_up()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Publishes the rows, or goes on waiting for them as long as their routes are what they were."""
        table = self._table(rows)
        before, self._under_way = self._under_way, None
        if before is not None and any(before.of(row.topic) != table.of(row.topic) for row in rows):
            raise TransientError("A topic of the batch was switched meanwhile.", delivered_ids=self.give_up())
        try:
            self._send(rows, marker, table)
        finally:
            self._under_way = table if self._unfenced.is_under_way else None

    def _table(self, rows: Sequence[OutboxRow]) -> RouteTable:
        try:
            return self._routes.for_topics(row.topic for row in rows)
        except TransientError as error:
            if self._under_way is not None:
                return self._under_way  # it was sent while that was true, and is only waited for
            text = f"Where messages of topic {rows[0].topic!r} go is not known: {error.message}"
            raise TransientError(text, hint=error.hint) from error


def routed(rows: Sequence[OutboxRow], table: RouteTable) -> Mapping[str, str]:
    """The Kafka topic of each of the rows' topics; raises `TopicSwitchingError` for the first that is closed."""
    found: dict[str, str] = {}
    for topic in dict.fromkeys(row.topic for row in rows):
        target = table.of(topic)
        if target is None:
            raise TopicSwitchingError(
                topic,
                f"Topic {topic!r} is being switched to its next generation; its messages wait.",
                hint=f"`inorder topics status {topic}` says how far it is.",
            )
        found[topic] = target
    return found
