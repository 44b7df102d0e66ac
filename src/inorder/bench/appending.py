"""Who appends events for the replicator to carry: a backlog at once, or one append whenever it is due.

An event's payload begins with its number in its journal, so that what is read back shows which event it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from pathlib import Path
from typing import Any

from inorder.bench.load import Schedule, when_due
from inorder.journal.client import Journal
from inorder.journal.service import Journals
from inorder.model.journal import Event, Key, PartitionOffset
from inorder.settings import Settings

PAYLOAD_BYTES = 100
HEAD_START_NS = 200_000_000


def payload_of(number: int) -> bytes:
    """A payload of 100 bytes that names its event."""
    return b"%d " % number + b"x" * (PAYLOAD_BYTES - len(str(number)) - 1)


def number_of(payload: object) -> int:
    """The number that a payload names; 0, which no event has, for what is no payload of ours."""
    return int(payload.partition(b" ")[0]) if isinstance(payload, bytes) else 0


def append_backlog(config: str, topic: str, rounds: int, batch: int, journals: int) -> dict[str, Any]:
    """Appends to every journal in turn, so many rounds of so many events; returns when all are acknowledged."""
    with closing(Journals(Settings.load(Path(config)))) as opened:
        made = _journals(opened, topic, "id", journals)
        sent: list[Future[PartitionOffset]] = []
        for turn in range(rounds):
            numbers = range(1 + turn * batch, 1 + (turn + 1) * batch)
            sent += [each.append_later([Event(number, payload_of(number)) for number in numbers]) for each in made]
        wait(sent)
        return {"records": len({place.result() for place in sent})}


def append_live(
    config: str, topic: str, rate: int, seconds: float, warm_seconds: float, journals: int
) -> dict[str, Any]:
    """Appends an event whenever one is due, and never waits for it; returns the place of each and when it was due."""
    schedule = Schedule(rate, seconds, warm_seconds)
    with closing(Journals(Settings.load(Path(config)))) as opened:
        made = _journals(opened, topic, "live", journals)
        sent: list[tuple[int, Future[PartitionOffset]]] = []
        for number, due in when_due(schedule, time.monotonic_ns() + HEAD_START_NS, range(schedule.total)):
            event = 1 + number // journals
            sent.append((due, made[number % journals].append_later([Event(event, payload_of(event))])))
        places = [(due, place.result()) for due, place in sent]
    return {"appended": [[place.partition, place.offset, due] for due, place in places]}


def _journals(opened: Journals, topic: str, name: str, count: int) -> Sequence[Journal]:
    return [opened.journal(Key(f"{name}-{number}", topic)) for number in range(count)]
