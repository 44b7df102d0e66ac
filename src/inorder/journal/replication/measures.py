"""What the replicator measures, slice by slice; the driver serves the sums (`engines/measures.py`).

| name                 | what                                                                              |
|---|---|
| `records`, `bytes`   | new records of journals, and the bytes of their values                            |
| `events`             | events written to the store                                                       |
| `forks`              | events that lost against those of another writer                                  |
| `parked`             | journals that were parked, or got more records in quarantine                      |
| `quarantined`        | those records                                                                     |
| `replication/<type>` | from a record's time to its commit                                                |
| `delivery/<type>`    | from a record's time to the time at which its slice was read                      |
| `round`              | from then to the commit                                                           |
| `round_records`      | records of a slice                                                                |
| `version/<version>`  | records by the version of the library that wrote them                             |
| `expiry/<how long>`  | journals written to, by how long they live after their last append                |
| `store/<verb>`       | how long the store took                                                           |

All but the times of the store are taken once a slice, after its commit. A slice whose outcome never reaches the driver
is missing from the figures: they are hints, the store is authoritative.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from inorder.engines.measures import MeasureTally
from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.replication.actions import JournalOutcome, SliceActions
from inorder.journal.replication.store_port import (
    Quarantined,
)
from inorder.journal.stores.ports import JournalHead
from inorder.journal.timing import timed

TYPES: Final = {Append: "append", Delete: "delete", Purge: "purge", Mark: "mark"}
EXPIRIES: Final = {"day": 1, "week": 7, "month": 31, "year": 366}
"""Labels for how long a journal lives at most, and their days."""


@dataclass(slots=True)
class ReplicationTally:
    """Gathers the figures of one worker."""

    tally: MeasureTally
    now: Callable[[], float] = time.time
    """Seconds since 1970, as the times of records are."""
    read_at: float = 0.0

    def begin_slice(self) -> None:
        self.read_at = self.now()

    def timed(self, verb: str) -> AbstractContextManager[None]:
        """Measures a call to the store, whether it succeeds or fails."""
        return timed(partial(self.took_store, verb))

    def took_store(self, verb: str, seconds: float) -> None:
        self.tally.took(f"store/{verb}", _micros(seconds))

    def add_slice(self, found: SliceActions, done: Sequence[JournalOutcome], parked: Sequence[Quarantined]) -> None:
        """Counts what was new in a slice, right after its commit."""
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
        self._add_times(Counter(moments), committed_at)
        heads = {each.change.key.id: each.change.head for each in done}
        for word, journals in Counter([expiry_label(head) for head in heads.values() if head is not None]).items():
            tally.add(f"expiry/{word}", journals)

    def _add_times(self, moments: Mapping[tuple[type, int | None, str | None], int], committed_at: float) -> None:
        """Takes counts by type, time and version, of which there are far fewer than records."""
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


def expiry_label(head: JournalHead) -> str:
    """How long a journal lives after its last append, as one of a few labels."""
    if head.expiry is None:
        return "none"
    return next((word for word, days in EXPIRIES.items() if head.expiry.after <= timedelta(days=days)), "longer")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
