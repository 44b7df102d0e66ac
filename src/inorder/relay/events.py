"""What a relay tells whoever asked to be told, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from inorder.model.outbox_row import OutboxRow


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """This instance began to own a shard."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """It owns the shard still, and began a new term after trouble: what was not settled is claimed again."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """It gave the shard up in an orderly way: everything it had published is settled."""

    shard: int
    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """Another instance owns the shard; nothing of this term can be published any more."""

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
    """A batch of one topic, by the strategy `topic-lock`: sent to its end, or broken off by an error."""

    topic: str
    messages: tuple[OutboxRow, ...]
    error: Exception | None


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A breaker of the strategy `polling`, `outbox` or `missing`, is `closed` or `open` from now on."""

    breaker: str
    state: str


RelayEvent = (
    LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead | BatchProduced | BreakerChanged
)


class RateMeter:
    """Reads the counter of published records now and then."""

    def __init__(self, shard: int, seconds: float, now: float) -> None:
        self._shard = shard
        self._seconds = seconds
        self._started = self._read_at = now
        self._read = 0

    def due(self, now: float, total: int) -> MeterRead | None:
        """A reading, if the last one is long enough ago."""
        if now - self._read_at < self._seconds:
            return None
        reading = MeterRead(self._shard, total, now - self._started, total - self._read, now - self._read_at)
        self._read_at, self._read = now, total
        return reading
