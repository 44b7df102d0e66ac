"""Routes: to which Kafka topic the messages of a topic go at the moment, as far as a writer may trust its memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from inorder.model.errors import TransientError
from inorder.ports.topic_generations import TopicState

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
