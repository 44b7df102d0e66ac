"""A relay loop on a thread, against an outbox and a broker in memory, for tests of what it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from inorder.kafka.shard_log import ShardLog
from inorder.model.message import OutboxRow
from inorder.relay.drain import DrainStrategy
from inorder.relay.events import RelayEvent
from inorder.relay.leadership.lease import Lease, NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.options import LoopOptions
from inorder.relay.scan import BATCH_BYTES
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.unit.relay.test_simulation import HASTE


@dataclass
class World:
    """What the loop works on, and the events it reported."""

    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    stop: threading.Event = field(default_factory=threading.Event)
    events: list[RelayEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exceeded = MemoryExceeded(self.outbox)

    def commit(self, *rows: tuple[str, bytes, bytes]) -> None:
        """A transaction with rows of topic, key and value."""
        for topic, key, value in rows:
            self.outbox.insert("t", topic, key, value)
        self.outbox.end("t")

    def sent(self, topic: str = "t") -> list[bytes | None]:
        return [row.value for row in self.broker.records if row.topic == topic]

    def events_of(self, kind: type[Any]) -> Sequence[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def loop_of(
    world: World,
    *,
    strategy: str = "drain",
    log: ShardLog | None = None,
    lease: Lease | None = None,
    batch_size: int = 50,
    in_flight_limit: int = 1000,
    batch_bytes: int = BATCH_BYTES,
    **options: Any,
) -> RelayLoop:
    chosen = (
        DrainStrategy(world.outbox, batch_size, batch_bytes=batch_bytes)
        if strategy == "drain"
        else MarkPurgeStrategy(world.outbox, batch_size, in_flight_limit, batch_bytes)
    )
    pace = replace(HASTE, blocked=0.002, topic=0.002, meter=0.002)
    options = {"stop": world.stop, "max_attempts": 3, "pace": pace, "on_event": world.events.append, **options}
    return RelayLoop(
        chosen, world.exceeded, log or MemoryShardLog(world.broker), lease or NoLease(), LoopOptions(**options)
    )


@contextmanager
def running(world: World, **chosen: Any) -> Iterator[RelayLoop]:
    """Runs the loop that `loop_of` makes of the same arguments."""
    loop = loop_of(world, **chosen)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        world.stop.set()
        thread.join()


def malformed(id: int, flaw: str, *, topic: str = "t", key: bytes | None = b"k") -> OutboxRow:
    """A row that another program wrote incorrectly."""
    return OutboxRow(id, topic, key, b"v", (), None, None, flaw)
