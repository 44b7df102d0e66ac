"""A polling relay in the thread of the test, on tables and a broker in memory, with a clock that each look moves on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from inorder.kafka.shard_log import Delivery, Incomplete, ShardLog
from inorder.model.errors import InorderError, RejectedError
from inorder.model.message import OutboxRow
from inorder.relay.events import RelayEvent
from inorder.relay.leadership.lease import Lease, NoLease
from inorder.relay.options import Pace
from inorder.relay.polling import PollingLoop, PollingOptions, PollingTables
from inorder.relay.stores.ports import Key, MissingEvent, Page, PollingState, Scan, Settlement
from tests.fakes.log import MemoryBroker, MemoryShardLog, MemoryUnfencedLog, failed
from tests.fakes.outbox import MemoryOutbox
from tests.fakes.polling import MemoryPollingStore, MemoryPollingTables

TICK_SECONDS = 0.05
T = TypeVar("T")

QUICK = Pace(lease=0.0, check=0.0, parked=0.0, back_off=0.0, topic=1.0, blocked=0.0)
OPTIONS = PollingOptions(
    batch_size=3, missing_batch_size=2, queue_wait=0.0, missing_wait=1.0, missing_max_retries=3, redelivery_delay=0.0
)

Effect = Callable[[str, Callable[[], Any]], Any]
"""Carries an effect out, by its name, or lets it fail."""


class Dying(BaseException):
    """The process is gone: nothing of it catches this."""


@dataclass
class World:
    """What relays work on, and everything that they asked for, by name."""

    options: PollingOptions = OPTIONS
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    now: float = 0.0
    later: dict[float, Callable[[], object]] = field(default_factory=dict)
    """What happens at which time."""
    effects: list[str] = field(default_factory=list)
    events: list[RelayEvent] = field(default_factory=list)
    refuses: Callable[[OutboxRow], bool] = lambda _row: False
    fate: Effect = lambda _name, effect: effect()
    names_holders: bool = True
    names_refused: bool = True
    """Whether the broker says which record of a batch it refused."""
    is_fenced: bool = True

    def __post_init__(self) -> None:
        self.tables = MemoryPollingTables(self.outbox)

    def commit(self, *rows: tuple[str, str], topic: str = "t") -> list[int]:
        """A transaction with rows of key and value."""
        ids = [self.outbox.insert("now", topic, key.encode() or None, value.encode()) for key, value in rows]
        self.outbox.end("now")
        return ids

    def sent(self) -> list[str]:
        return [(row.value or b"").decode() for row in self.broker.records]

    def is_done(self) -> bool:
        """Whether everything is delivered, and nothing waits to be proven."""
        rows = self.tables.rows()
        reached = not rows or self.tables.offset >= rows[-1].id
        return reached and not self.tables.missing and not self.later

    def run(
        self,
        until: Callable[[], bool] | None = None,
        *,
        lease: Lease | None = None,
        seconds: float = 100.0,
        lease_in_database: bool = False,
        **options: Any,
    ) -> PollingLoop:
        """Runs a relay until so, or for so long by its own clock; what it dies of comes out."""
        stop, end, is_over = threading.Event(), self.now + seconds, until or self.is_done

        def clock() -> float:
            self.now += TICK_SECONDS
            for at in [at for at in self.later if at <= self.now]:
                self.later.pop(at)()
            if is_over() or self.now > end:
                stop.set()
            return self.now

        tables = PollingTables(_Rows(self), _Rows(self), _Store(self))
        loop = PollingLoop(
            tables,
            _Log(self),
            lease or NoLease(),
            replace(self.options, stop=stop, on_event=self.events.append, clock=clock, **{"pace": QUICK, **options}),
            lease_in_database=lease_in_database,
        )
        loop.run()
        assert self.now <= end or until is not None, f"not done after {seconds} s: {self.tables}"
        return loop

    def carry_out(self, name: str, effect: Callable[[], T]) -> T:
        self.effects.append(name)
        found: T = self.fate(name, effect)
        return found


class _Rows(MemoryOutbox):
    """The outbox, each question of which may fail."""

    def __init__(self, world: World) -> None:
        super().__init__(beside=world.outbox)
        self._world = world

    def read(self, scan: Scan, limit: int) -> Page:
        return self._world.carry_out("read", lambda: super(_Rows, self).read(scan, limit))

    def holders(self) -> frozenset[str] | None:  # type: ignore[override]  # as a database that cannot name them
        found = self._world.carry_out("holders", super().holders)
        return found if self._world.names_holders else None


class _Store(MemoryPollingStore):
    """The side tables, each question of which may fail."""

    def __init__(self, world: World) -> None:
        super().__init__(world.tables)
        self._world = world

    def check(self) -> None:
        self._world.carry_out("check", super().check)

    def offset(self) -> int:
        return self._world.carry_out("offset", super().offset)

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        return self._world.carry_out("missing", lambda: super(_Store, self).missing(above, limit))

    def parked(self) -> dict[Key, tuple[int, ...]]:
        return self._world.carry_out("parked", super().parked)

    def settle(self, settlement: Settlement) -> None:
        self._world.carry_out("settle", lambda: super(_Store, self).settle(settlement))

    def state(self) -> PollingState:
        return super().state()


class _Log:
    """A shard log that refuses what the world says, and each call of which may fail."""

    def __init__(self, world: World) -> None:
        self._world = world
        broker = world.broker
        self._log: ShardLog = MemoryShardLog(broker) if world.is_fenced else MemoryUnfencedLog(broker)

    def take_over(self) -> bytes | None:
        return self._world.carry_out("take_over", self._log.take_over)

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        try:
            return self._world.carry_out("publish", lambda: self._publish(rows, marker))
        except InorderError as error:
            return failed(error)

    def close(self) -> None:
        self._log.close()

    def _publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        bad = next((row for row in rows if self._world.refuses(row)), None)
        if bad is not None:
            known = bad.id if self._world.names_refused else None
            return Incomplete(RejectedError(f"Row {bad.id} is too large.", row_id=known))
        return self._log.publish(rows, marker)


def deaths(plan: Mapping[int, bool]) -> Effect:
    """Dies at the effects with these numbers, before (False) or after (True) they took place."""
    count = -1

    def fate(_name: str, effect: Callable[[], T]) -> T:
        nonlocal count
        count += 1
        dies = plan.get(count)
        if dies is False:
            raise Dying
        try:
            return effect()
        finally:
            if dies:
                raise Dying  # the answer is lost

    return fate
