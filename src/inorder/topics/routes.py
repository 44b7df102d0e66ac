"""Routes: to which Kafka topic the messages of a topic go at the moment, and the shard logs that follow them.

A writer caches its routes for half a second; `switch.py` explains why that is enough. Callers of a routed log know
topics by name, the log inside knows Kafka topics. Rows of a topic that is closed for a switch are reported as rows of
an unavailable topic, so that relay and publisher let that topic wait and continue with all others. Rows of a topic that
an operator has paused wait in the same way (`pauses.py`). Taking over reads the routes behind the fence of the log
inside, which is what the switch relies on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from inorder.kafka.shard_log import Abandoned, Delivered, Delivery, Incomplete, ShardLog, UnfencedLog
from inorder.model.errors import (
    KeyPausedError,
    TopicPausedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
)
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.topics.generations import TopicState
from inorder.topics.pauses import NO_PAUSES, Pauses

log = logging.getLogger("inorder.topics")

TRUSTED_SECONDS = 0.5
"""A writer reads its routes again when they are older. `failover.GRACE_SECONDS` depends on it."""


class StateReader(Protocol):
    """The source of routes: the database or the mirror."""

    def read_all(self) -> Iterable[TopicState]:
        """The states of all topics; raises `TransientError` if there is no answer."""

    def close(self) -> None:
        """Closes the connection; `read_all` opens it again."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Where messages go. A topic that is not listed has its first generation, the Kafka topic of the same name."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """The Kafka topic of each topic that has a later generation."""
    closed: frozenset[str] = frozenset()
    """Topics that are being switched, to which nothing may be written for a moment."""
    paused: Mapping[str, str] = field(default_factory=dict)
    """Topics that an operator has paused, each with the reason."""
    paused_keys: Mapping[tuple[str, bytes], str] = field(default_factory=dict)
    """The same for keys, by topic and key."""
    paused_shards: Mapping[str, str] = field(default_factory=dict)
    """The same for shards, by number."""

    def of(self, topic: str) -> str | None:
        """The Kafka topic to write to; None while the topic is closed."""
        return None if topic in self.closed else self.moved.get(topic, topic)

    @property
    def waiting(self) -> AbstractSet[str]:
        """The topics to which nothing may be written now."""
        return self.closed | self.paused.keys()


def build_routes(states: Iterable[TopicState], pauses: Pauses = NO_PAUSES) -> RouteTable:
    """Builds the routes from the states of all topics, and from what is paused."""
    known = list(states)
    moved = {state.topic: state.current.topic for state in known if state.current.topic != state.topic}
    closed = frozenset(state.topic for state in known if not state.takes_records)
    return RouteTable(moved, closed, pauses.topics, pauses.keys, pauses.shards)


class Routes:
    """The routes of one process, read again when they are too old; thread-safe."""

    def __init__(
        self,
        states: StateReader,
        read_pauses: Callable[[], Pauses] = lambda: NO_PAUSES,
        *,
        seconds: float = TRUSTED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = states
        self._read_pauses = read_pauses
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
        """The same, but reads again if one of these topics had to wait, since it may be open by now."""
        table = self.current()
        if (waiting := table.waiting) and not waiting.isdisjoint(topics):
            with suppress(TransientError):  # it stays closed; other topics need no answer
                return self.fresh()
        return table

    def fresh(self) -> RouteTable:
        """Routes that were true at some moment after the call began."""
        with self._lock:
            return self._read_again()

    def close(self) -> None:
        """Closes the connection; the next read opens it again."""
        self._states.close()

    def _read_again(self) -> RouteTable:
        # The age counts from before the request, because the answer may have been on its way for long.
        asked_at = self._clock()
        before, self._table = self._table, build_routes(self._states.read_all(), self._read_pauses())
        self._read_at = asked_at
        for topic in sorted(self._table.paused.keys() - before.paused.keys()):
            log.warning("topics.paused", extra={"topic": topic, "reason": self._table.paused[topic]})
        for topic in sorted(before.paused.keys() - self._table.paused.keys()):
            log.info("topics.resumed", extra={"topic": topic})
        return self._table


class PartitioningLog(ShardLog, Protocol):
    """A shard log that chooses the partitions of some topics itself."""

    @property
    def partitioners(self) -> MutableMapping[str, Partitioner]:
        """By Kafka topic; a generation gets the partitioner of its topic when it is first written to."""


class UnfencedPartitioningLog(PartitioningLog, UnfencedLog, Protocol):
    """The same without a fence."""


class SentListener(Protocol):
    """Gets the rows that were sent, with the time at which that began, in nanoseconds since 1970."""

    def sent(self, rows: Iterable[OutboxRow], began: int) -> None: ...


class RoutedShardLog:
    """A fenced shard log that writes to the current generations."""

    def __init__(self, log: PartitioningLog, routes: Routes, traces: SentListener | None = None) -> None:
        self._log = log
        self._routes = routes
        self._traces = traces

    def take_over(self) -> bytes | None:
        """Takes over, and then reads the routes."""
        marker = self._log.take_over()
        self._routes.fresh()
        return marker

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Publishes the rows to the current generations of their topics."""
        try:
            table = self._routes.for_topics(row.topic for row in rows)
        except TransientError as error:
            return Incomplete(error)
        return self._send(rows, marker, table)

    def shard_pause(self, index: int) -> str:
        """Why an operator has paused a shard; empty if it is not paused."""
        return self._routes.current().paused_shards.get(str(index), "")

    def close(self) -> None:
        """Closes the log and the connection of the routes."""
        self._log.close()
        self._routes.close()

    def _send(self, rows: Sequence[OutboxRow], marker: bytes, table: RouteTable) -> Delivery:
        if self._traces is None:
            return self._route(rows, marker, table)
        began = time.time_ns()
        match delivery := self._route(rows, marker, table):
            case Delivered():
                self._traces.sent(rows, began)
            case Incomplete(delivered=some) if some:
                self._traces.sent([row for row in rows if row.id in some], began)
        return delivery

    def _route(self, rows: Sequence[OutboxRow], marker: bytes, table: RouteTable) -> Delivery:
        if not table.moved and not table.waiting and not table.paused_keys:
            return self._log.publish(rows, marker)
        try:
            moved = route_topics(rows, table)
            require_running(rows, table)
        except (TopicSwitchingError, TopicPausedError, KeyPausedError) as error:
            return Incomplete(error)
        for topic, target in moved.items():
            if topic in self._log.partitioners:
                self._log.partitioners[target] = self._log.partitioners[topic]
        sent = [row._replace(topic=moved[row.topic]) for row in rows]
        match delivery := self._log.publish(sent, marker):
            case Incomplete(TopicUnavailableError() as away):
                topic = next((topic for topic, target in moved.items() if target == away.topic), away.topic)
                return replace(delivery, error=TopicUnavailableError(topic, away.message, hint=away.hint))
            case _:
                return delivery


class RoutedUnfencedLog(RoutedShardLog):
    """The same for an unfenced log: gives up a batch that is under way when one of its topics is switched."""

    def __init__(self, log: UnfencedPartitioningLog, routes: Routes, traces: SentListener | None = None) -> None:
        super().__init__(log, routes, traces)
        self._unfenced = log
        self._under_way: RouteTable | None = None

    def take_over(self) -> bytes | None:
        """Begins; without a fence there is nothing to read behind, so `publish` reads the routes."""
        return self._log.take_over()

    def give_up(self) -> Abandoned:
        """Drops the batch that is under way, if there is one."""
        return self._unfenced.give_up()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Publishes the rows, or continues to wait for them as long as their routes stay the same."""
        before, self._under_way = self._under_way, None
        try:
            table = self._routes.for_topics(row.topic for row in rows)
        except TransientError as error:
            if before is None:
                text = f"The Kafka topic for messages of {rows[0].topic!r} is not known: {error.message}"
                return Incomplete(TransientError(text, hint=error.hint))
            table = before  # the batch was sent by these routes, and is only waited for
        if before is not None and any(before.of(row.topic) != table.of(row.topic) for row in rows):
            return Incomplete(TransientError("A topic of the batch was switched meanwhile."), *self.give_up())
        if before is not None:
            table = replace(
                table, paused={}, paused_keys={}
            )  # the batch was sent before the pause, and is only waited for
        delivery = self._send(rows, marker, table)
        if isinstance(delivery, Incomplete) and delivery.is_under_way:
            self._under_way = table
        return delivery


def route_topics(rows: Sequence[OutboxRow], table: RouteTable) -> Mapping[str, str]:
    """Returns the Kafka topic of each of the rows' topics; raises `TopicUnavailableError` for the first closed one."""
    found: dict[str, str] = {}
    for topic in dict.fromkeys(row.topic for row in rows):
        target = table.of(topic)
        if target is None:
            raise TopicSwitchingError(
                topic,
                f"Topic {topic!r} is being switched to its next generation; its messages wait.",
                hint=f"`inorder topics status {topic}` shows the progress.",
            )
        if topic in table.paused:
            raise TopicPausedError(
                topic,
                f"Topic {topic!r} is paused: {table.paused[topic]}. Its messages wait.",
                hint=f"`inorder resume topic {topic}` sends them.",
            )
        found[topic] = target
    return found


def require_running(rows: Sequence[OutboxRow], table: RouteTable) -> None:
    """Raises `KeyPausedError` if keys of these rows are paused."""
    if not table.paused_keys:
        return
    found = frozenset((row.topic, row.key) for row in rows if row.key is not None) & table.paused_keys.keys()
    if found:
        topic, key = min(found)
        raise KeyPausedError(
            found,
            f"{len(found)} keys are paused, among them one of topic {topic!r}: {table.paused_keys[topic, key]}. "
            "Their messages wait.",
            hint="`inorder status` lists them, `inorder resume key TOPIC/KEY` sends their messages.",
        )
