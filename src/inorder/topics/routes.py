"""Routes: to which Kafka topic the messages of a topic go at the moment, as far as a writer may trust its memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from inorder.kafka.shard_log_port import ShardLog
from inorder.model.errors import TopicSwitchingError, TopicUnavailableError, TransientError
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.topics.generations import TopicState

TRUSTED_SECONDS = 0.5
"""A writer asks again when its routes are older. `failover.GRACE_SECONDS` relies on it."""


class States(Protocol):
    """Where routes are read: the database or the mirror."""

    def read_all(self) -> Iterable[TopicState]:
        """The states of all topics; raises `TransientError` where there is no answer."""

    def close(self) -> None:
        """Gives the connection back; may be asked again afterwards."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Where messages go. A topic that is named nowhere here has its first generation, and goes by its own name."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """The Kafka topic of each topic that has a later generation."""
    closed: frozenset[str] = frozenset()
    """Topics that are being switched: nothing may be written, and a moment later all may."""

    def of(self, topic: str) -> str | None:
        """The Kafka topic to write to; None while the topic is closed."""
        return None if topic in self.closed else self.moved.get(topic, topic)


def routes_of(states: Iterable[TopicState]) -> RouteTable:
    """The routes that follow from the states of all topics."""
    known = list(states)
    moved = {state.topic: state.current.topic for state in known if state.current.topic != state.topic}
    return RouteTable(moved, frozenset(state.topic for state in known if not state.takes_records))


class Routes:
    """The routes of one process, read again when they are too old. Any thread may ask."""

    def __init__(
        self, states: States, *, seconds: float = TRUSTED_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._states = states
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._table = RouteTable()
        self._read_at = float("-inf")

    def current(self) -> RouteTable:
        """Routes that were true at most `TRUSTED_SECONDS` ago."""
        if self._clock() - self._read_at <= self._seconds:
            return self._table
        with self._lock:
            return self._table if self._clock() - self._read_at <= self._seconds else self._read_again()

    def for_topics(self, topics: Iterable[str]) -> RouteTable:
        """The same, but a topic that was closed then is asked for again, since it may be open by now."""
        table = self.current()
        if table.closed and not table.closed.isdisjoint(topics):
            with suppress(TransientError):  # it stays closed, and other topics need no answer
                return self.fresh()
        return table

    def fresh(self) -> RouteTable:
        """Routes that were true at some moment after the call began."""
        with self._lock:
            return self._read_again()

    def close(self) -> None:
        """Gives the connection back; the next question opens it again."""
        self._states.close()

    def _read_again(self) -> RouteTable:
        # Their age counts from before the question: the answer may have been on its way for long.
        asked_at = self._clock()
        self._table = routes_of(self._states.read_all())
        self._read_at = asked_at
        return self._table


# A shard's log that follows the generations of its topics: callers know names, the log knows Kafka topics.
#
# Rows of a topic that is closed for a switch are refused as rows of a topic that is away for a moment, so that relay
# and publisher let that topic wait and go on with all others. Taking over reads the routes behind the inner log's
# fence, which is what the switch relies on (`switch.py`).

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
