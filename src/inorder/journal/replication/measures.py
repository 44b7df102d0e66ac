"""What the replicator measures, slice by slice, for whoever serves it (`tally`).

| name                 | what                                                                              |
|---|---|
| `records`, `bytes`   | records of journals that were new, and the bytes of their values                  |
| `events`             | events that were written to the store                                             |
| `forks`              | events that lost against those of another writer                                  |
| `parked`             | journals that were parked, or have got more records in quarantine                 |
| `quarantined`        | those records                                                                     |
| `replication/<type>` | from a record's time to its commit                                                |
| `delivery/<type>`    | from a record's time to the moment at which its slice was read                    |
| `round`              | from that moment to the commit                                                    |
| `round_records`      | records of a slice                                                                |
| `version/<version>`  | records by the version of the library that wrote them                             |
| `expiry/<how long>`  | journals that were written to, by how long they live after their last append      |
| `store/<verb>`       | how long the store has taken                                                      |

All of it is gathered once a slice, after its commit. A slice whose outcome the driver never hears of is not in the
figures: they are hints, the store is right.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

from inorder.engines.measures import MeasureTally
from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.replication.replica import JournalChange, JournalReplica, Quarantined, ReplicaSlice, SliceAround
from inorder.journal.replication.replicate import Grouped, Replicated
from inorder.journal.stores.ports import JournalHead
from inorder.model.journal import Key

T = TypeVar("T")
P = ParamSpec("P")

TYPES: Final = {Append: "append", Delete: "delete", Purge: "purge", Mark: "mark"}
EXPIRIES: Final = {"day": 1, "week": 7, "month": 31, "year": 366}
"""The words for how long a journal lives at most, and their days."""


@dataclass(slots=True)
class Measuring:
    """The figures of one worker."""

    tally: MeasureTally
    now: Callable[[], float] = time.time
    """Seconds since 1970, as the times of records are."""
    read_at: float = 0.0

    def begin(self) -> None:
        """A slice was read."""
        self.read_at = self.now()

    def committed(self, found: Grouped, done: Sequence[Replicated], parked: Sequence[Quarantined]) -> None:
        """What was new in the slice is in the store."""
        tally, committed_at = self.tally, self.now()
        acted = [each for some in found.journals.values() for each in some]
        records = len(acted) + len(found.damaged)
        tally.add("records", records)
        tally.add("bytes", sum(map(len, filter(None, [each.record.value for each in acted]))))
        tally.add("events", sum(each.events for each in done))
        tally.add("forks", sum(len(each.forks) for each in done))
        tally.add("parked", len({each.key for each in parked}))
        tally.add("quarantined", len(parked))
        tally.took("round", _micros(committed_at - self.read_at))
        tally.had("round_records", records + found.foreign)
        moments = [(type(each.action), each.record.timestamp_ms, each.action.version) for each in acted]
        self._spread(Counter(moments), committed_at)
        heads = {each.change.key.id: each.change.head for each in done}
        for word, journals in Counter([expiry_word(head) for head in heads.values() if head is not None]).items():
            tally.add(f"expiry/{word}", journals)

    def _spread(self, moments: Mapping[tuple[type, int | None, str | None], int], committed_at: float) -> None:
        """Takes records by type, time and version: there are far fewer of these than records."""
        versions: dict[str | None, int] = {}
        kinds: dict[type, dict[int, int]] = {}
        for (kind, written_at, version), times in moments.items():
            versions[version] = versions.get(version, 0) + times
            at = (written_at or 0) * 1000
            found = kinds.setdefault(kind, {})
            found[at] = found.get(at, 0) + times
        self.tally.add_labels("version", versions)
        for name, now in (("replication", _micros(committed_at)), ("delivery", _micros(self.read_at))):
            for kind, times_at in kinds.items():
                self.tally.took_all(f"{name}/{TYPES[kind]}", {now - at: times for at, times in times_at.items()})


def expiry_word(head: JournalHead) -> str:
    """How long a journal lives after its last append, in one of a few words."""
    if head.expiry is None:
        return "none"
    return next((word for word, days in EXPIRIES.items() if head.expiry.after <= timedelta(days=days)), "longer")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


class MeasuredReplica:
    """A replica whose every verb is timed; it passes on results and errors as they are."""

    def __init__(self, replica: JournalReplica, tally: MeasureTally) -> None:
        self._replica = replica
        self._tally = tally

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """Times what is done within, and the commit."""
        return self._measured(self._replica.slice(topic, partition))

    def offsets(self, topic: str) -> Mapping[int, int]:
        """Times the question."""
        return timed(self._tally, "offsets", self._replica.offsets, topic)

    def close(self) -> None:
        """Gives connections back."""
        self._replica.close()

    @contextmanager
    def _measured(self, begun: AbstractContextManager[ReplicaSlice]) -> Iterator[ReplicaSlice]:
        with begun as writing:
            yield MeasuredSlice(writing, self._tally)
            began = time.perf_counter()
        self._tally.took("store/commit", _micros(time.perf_counter() - began))


class MeasuredSlice(SliceAround):
    """A slice whose verbs that take time are timed."""

    def __init__(self, writing: ReplicaSlice, tally: MeasureTally) -> None:
        super().__init__(writing)
        self._tally = tally

    def lock_offset(self) -> int | None:
        """Times it: a second replicator waits here."""
        return timed(self._tally, "lock_offset", self._slice.lock_offset)

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        """Times it."""
        return timed(self._tally, "parked", self._slice.parked, keys)

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        """Times it."""
        return timed(self._tally, "heads", self._slice.heads, keys)

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        """Times it."""
        timed(self._tally, "carry_out", self._slice.carry_out, changes)

    def move_offset(self, offset: int) -> None:
        """Times it."""
        timed(self._tally, "move_offset", self._slice.move_offset, offset)


def timed(tally: MeasureTally, verb: str, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of a call to the store, which is timed whether it succeeds or fails."""
    began = time.perf_counter()
    try:
        return call(*arguments, **options)
    finally:
        tally.took(f"store/{verb}", _micros(time.perf_counter() - began))
