"""Waiting for the store instead of reading Kafka: when it is worth it, for how long, and what ends it.

**What is authoritative.** The store's own offset. A notice (`notice`) only says that it is time to ask for it again. So
a notice that lies, that is old, that is of a store before it was restored, or that never comes costs a question or some
time, and never an event.

    listen for notices of the partition     before the store is asked, so that none is missed in between
    has the store passed the mark?          if so the wait is over
    sleep until a notice reaches the mark   or until whoever listens may have missed one, or the time is over
    ask the store again                     and so on

A wait in which no notice came in time is *in vain*. From then on nobody waits for that partition until a notice reaches
the offset that was waited for in vain. So while replication is down, or far behind, one read pays for it and the others
go to Kafka at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inorder.journal.stores.ports import EventualJournal
from inorder.kafka.admin import Place
from inorder.model.deadline import Deadline


class OffsetNotices(Protocol):
    """Hears what replicators announce. Many threads use one at a time; nothing that it meets is raised."""

    def listen(self, place: Place, offset: int) -> AbstractContextManager[threading.Event | None]:
        """An event that is set whenever the store may have passed the offset; None where waiting is not worth it."""

    def in_vain(self, place: Place, offset: int) -> None:
        """Somebody waited for this and heard nothing in time."""


class StoreWait:
    """Waits until the store has passed an offset, for so many seconds at most."""

    def __init__(
        self, store: EventualJournal, notices: OffsetNotices, clock: Callable[[], float], *, seconds: float
    ) -> None:
        self._store = store
        self._notices = notices
        self._clock = clock
        self._seconds = seconds

    def has_passed(self, place: Place, offset: int, deadline: Deadline) -> bool:
        """Whether the store says that it has everything up to the offset, perhaps after a while."""
        with self._notices.listen(place, offset) as heard:
            if heard is None:
                return False
            end = self._clock() + wait_seconds(self._seconds, deadline.remaining())
            has_passed, is_told = self._asked(place, offset), True
            while is_told and not has_passed:
                left = end - self._clock()
                is_told = left > 0 and heard.wait(left)
                heard.clear()  # before the store is asked: what is told meanwhile must not be forgotten
                has_passed = self._asked(place, offset)
        if not is_told:
            self._notices.in_vain(place, offset)
        return has_passed

    def _asked(self, place: Place, offset: int) -> bool:
        replicated = self._store.offset(*place)
        return replicated is not None and replicated >= offset


def wait_seconds(seconds: float, remaining: float) -> float:
    """How long to wait, given what is left of a read's time: half of it at most, so that Kafka can still be read.

    >>> wait_seconds(0.5, 30.0), wait_seconds(0.5, 0.4)
    (0.5, 0.2)
    """
    return min(seconds, remaining / 2)


class _Waiter(NamedTuple):
    offset: int
    wake: Callable[[], None]


class Waiters:
    """Who waits for which offset, and where waiting was in vain; not safe for threads by itself."""

    def __init__(self) -> None:
        self._waiting: dict[Place, list[_Waiter]] = {}
        self._in_vain: dict[Place, int] = {}

    def is_worth_it(self, place: Place, offset: int) -> bool:
        """Whether to wait; below what was in vain the offsets of the topic have begun again, so it is."""
        vain = self._in_vain.get(place)
        return vain is None or offset < vain

    def add(self, place: Place, offset: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` at each notice that reaches the offset; returns how to leave."""
        waiter = _Waiter(offset, wake)
        self._waiting.setdefault(place, []).append(waiter)
        return lambda: self._leave(place, waiter)

    def told(self, place: Place, offset: int) -> None:
        """A notice has come."""
        if offset >= self._in_vain.get(place, offset + 1):
            del self._in_vain[place]
        for waiter in tuple(self._waiting.get(place, ())):
            if waiter.offset <= offset:
                waiter.wake()

    def may_have_missed(self) -> None:
        """Notices may have come that were not heard: everybody asks the store."""
        for waiters in tuple(self._waiting.values()):
            for waiter in tuple(waiters):
                waiter.wake()

    def in_vain(self, place: Place, offset: int) -> None:
        """Nothing was heard while somebody waited for this."""
        self._in_vain[place] = offset

    def _leave(self, place: Place, waiter: _Waiter) -> None:
        waiting = self._waiting[place]
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[place]


# A notice: the store of this name has everything of a partition up to an offset.
#
# It is a record of a small compacted topic. The key is `store/topic/partition`, so that the newest notice of each is
# kept and whoever reads another store passes over it; the value is `{"offset": 41}`. Members of the value that are
# not known here are let pass.

_PARTS = 3


@dataclass(frozen=True, slots=True)
class OffsetNotice:
    """How far a store is; never a promise, since the store alone knows."""

    store: str
    place: Place
    offset: int

    def key(self) -> bytes:
        """What newer notices replace it by."""
        topic, partition = self.place
        return f"{self.store}/{topic}/{partition}".encode()

    def value(self) -> bytes:
        """The rest of it."""
        return json.dumps({"offset": self.offset}).encode()


def parse_notice(key: bytes | None, value: bytes | None) -> OffsetNotice | None:
    """The notice of a record; None for whatever else lies on the topic.

    >>> parse_notice(b"9f/journal/3", b'{"offset": 41}')
    OffsetNotice(store='9f', place=('journal', 3), offset=41)
    """
    try:
        parts, found = (key or b"").decode().split("/"), json.loads(value or b"")
        offset = found["offset"] if isinstance(found, dict) else None
        if len(parts) != _PARTS or type(offset) is not int:
            return None
        return OffsetNotice(parts[0], (parts[1], int(parts[2])), offset)
    except (ValueError, KeyError, RecursionError):
        return None
