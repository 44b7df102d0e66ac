"""Waiting for the store instead of reading Kafka: when it is worth it, for how long, and what ends it.

**What is authoritative.** The store's own offset. A notice only says that it is time to read it again. So a notice that
is wrong, old, of a store before it was restored, or that never comes costs a query or some time, and never an event.

    listen for notices of the partition     before the store is read, so that none is missed in between
    has the store passed the mark?          if so the wait is over
    sleep until a notice reaches the mark   or until a notice may have been missed, or the time is over
    read the store's offset again           and so on

A wait during which no notice came *timed out*. From then on no reader waits for that partition until a notice reaches
the offset of that wait. So while replication is down, or far behind, one read pays for it and the others go to Kafka at
once.

A notice is a record of a small compacted topic: the store of this name has everything of a partition up to an offset.
The key is `store/topic/partition`, so that the newest notice of each is kept and readers of another store skip it; the
value is `{"offset": 41}`. Unknown members of the value are ignored.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inorder.journal.stores.ports import EventualJournal
from inorder.model.deadline import Deadline
from inorder.model.partitioning import Place


class OffsetNotices(Protocol):
    """Receives what replicators announce. Safe for use by many threads; never raises."""

    def listen(self, place: Place, offset: int) -> AbstractContextManager[threading.Event | None]:
        """An event that is set whenever the store may have passed the offset; None if waiting is not worth it."""

    def timed_out(self, place: Place, offset: int) -> None:
        """A reader waited for this offset, and no notice came in time."""


class StoreWait:
    """Waits until the store has passed an offset, for at most `seconds`."""

    def __init__(
        self, store: EventualJournal, notices: OffsetNotices, clock: Callable[[], float], *, seconds: float
    ) -> None:
        self._store = store
        self._notices = notices
        self._clock = clock
        self._seconds = seconds

    def has_passed(self, place: Place, offset: int, deadline: Deadline) -> bool:
        """Whether the store has everything up to the offset; waits for it."""
        with self._notices.listen(place, offset) as heard:
            if heard is None:
                return False
            end = self._clock() + wait_seconds(self._seconds, deadline.remaining())
            has_passed, is_notified = self._store_has(place, offset), True
            while is_notified and not has_passed:
                left = end - self._clock()
                is_notified = left > 0 and heard.wait(left)
                heard.clear()  # before the store is read: a notice that comes meanwhile must not be lost
                has_passed = self._store_has(place, offset)
        if not is_notified:
            self._notices.timed_out(place, offset)
        return has_passed

    def _store_has(self, place: Place, offset: int) -> bool:
        replicated = self._store.offset(*place)
        return replicated is not None and replicated >= offset


def wait_seconds(seconds: float, remaining: float) -> float:
    """How long to wait, given the remaining time of a read: at most half of it, so that Kafka can still be read.

    >>> wait_seconds(0.5, 30.0), wait_seconds(0.5, 0.4)
    (0.5, 0.2)
    """
    return min(seconds, remaining / 2)


class _Waiter(NamedTuple):
    offset: int
    wake: Callable[[], None]


class Waiters:
    """The readers that wait for offsets, and the waits that timed out; not safe for threads by itself."""

    def __init__(self) -> None:
        self._waiting: dict[Place, list[_Waiter]] = {}
        self._timed_out: dict[Place, int] = {}

    def is_worth_it(self, place: Place, offset: int) -> bool:
        """Whether to wait; an offset below the one that timed out means that the topic was re-created, so yes."""
        timed_out_at = self._timed_out.get(place)
        return timed_out_at is None or offset < timed_out_at

    def add(self, place: Place, offset: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` at each notice that reaches the offset; returns how to stop that."""
        waiter = _Waiter(offset, wake)
        self._waiting.setdefault(place, []).append(waiter)
        return lambda: self._leave(place, waiter)

    def notify(self, place: Place, offset: int) -> None:
        if offset >= self._timed_out.get(place, offset + 1):
            del self._timed_out[place]
        for waiter in tuple(self._waiting.get(place, ())):
            if waiter.offset <= offset:
                waiter.wake()

    def wake_all(self) -> None:
        """Wakes all, because notices may have been missed."""
        for waiters in tuple(self._waiting.values()):
            for waiter in tuple(waiters):
                waiter.wake()

    def timed_out(self, place: Place, offset: int) -> None:
        self._timed_out[place] = offset

    def _leave(self, place: Place, waiter: _Waiter) -> None:
        waiting = self._waiting[place]
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[place]


_PARTS = 3


@dataclass(frozen=True, slots=True)
class OffsetNotice:
    """How far a store is; a hint, since only the store is authoritative."""

    store: str
    place: Place
    offset: int

    def key(self) -> bytes:
        topic, partition = self.place
        return f"{self.store}/{topic}/{partition}".encode()

    def value(self) -> bytes:
        return json.dumps({"offset": self.offset}).encode()


def parse_notice(key: bytes | None, value: bytes | None) -> OffsetNotice | None:
    """The notice of a record; None for any other record.

    >>> parse_notice(b"9f/journal/3", b'{"offset": 41}')
    OffsetNotice(store='9f', place=('journal', 3), offset=41)
    """
    try:
        parts, found = (key or b"").decode().split("/"), json.loads(value or b"")
        offset = found["offset"] if isinstance(found, dict) else None
        if len(parts) != _PARTS or type(offset) is not int or not -1 <= offset < 2**63:
            return None
        partition = int(parts[2])
        return OffsetNotice(parts[0], (parts[1], partition), offset) if 0 <= partition < 2**31 else None
    except (ValueError, KeyError, RecursionError):
        return None
