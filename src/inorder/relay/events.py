"""What a relay reports about itself: events as they happen, and counters.

`Relay.on_event` subscribes to the events. They are part of the public interface.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from inorder.model.message import OutboxRow

log = logging.getLogger("inorder.relay")


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """This instance began to own a shard."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """It still owns the shard and began a new term after a failure: what was not settled is claimed again."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """It gave the shard up on its own: everything it published is settled."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """Another instance owns the shard; nothing more of this term can be published."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class MeterRead:
    """How many records a shard's owner published: in all, and since the last reading."""

    shard: int
    total: int
    total_seconds: float
    interval: int
    interval_seconds: float

    @property
    def total_rate(self) -> float:
        """Records a second since the relay started."""
        return self.total / self.total_seconds if self.total_seconds > 0 else 0.0

    @property
    def interval_rate(self) -> float:
        """Records a second since the last reading."""
        return self.interval / self.interval_seconds if self.interval_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class BatchProduced:
    """A batch of one topic, with the strategy `topic-lock`: sent completely, or interrupted by `error`."""

    topic: str
    messages: tuple[OutboxRow, ...]
    error: Exception | None


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A circuit breaker of the strategy `polling` (`outbox` or `missing`) closed or opened."""

    breaker: str
    state: str


RelayEvent = (
    LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead | BatchProduced | BreakerChanged
)


SomeEvent = TypeVar("SomeEvent", bound=RelayEvent)


def notify(handler: Callable[[SomeEvent], None], event: SomeEvent) -> None:
    """Calls the handler. What it raises is logged and never stops the relay."""
    try:
        handler(event)
    except Exception:
        log.exception("relay.handler_failed", extra={"event_kind": type(event).__name__})


@dataclass(slots=True)
class SendCounts:
    """What a loop or worker has sent so far; only its own thread writes it."""

    published: int = 0
    exceeded: int = 0
    last_error: str = ""
    """Why it waits at the moment; empty while it works."""
    repeated: int = 0
    """How often the same was reported before, one after the other."""


class RateMeter:
    """Reads the counter of published records at an interval."""

    def __init__(self, shard: int, seconds: float, now: float) -> None:
        self._shard = shard
        self._seconds = seconds
        self._started = self._read_at = now
        self._read = 0

    def due(self, now: float, total: int) -> MeterRead | None:
        """A reading, if the interval has passed."""
        if now - self._read_at < self._seconds:
            return None
        reading = MeterRead(self._shard, total, now - self._started, total - self._read, now - self._read_at)
        self._read_at, self._read = now, total
        return reading
