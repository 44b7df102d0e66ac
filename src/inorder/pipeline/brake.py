"""The brake on mass refusal: whether refused records are buried, or their partition waits.

A table refuses a record for the record's fault (a text too long) or for a fault of its own: a trigger that raises, a
partition of the table that does not exist yet, a column that became NOT NULL. The error codes are the same. What tells
them apart is how many are refused: a fault of the table hits nearly every record, and ends. So a few refused records
are buried, and a partition of which most are refused waits until the table accepts them.

**What is authoritative.** The table: each attempt asks it again, and the first one that it accepts ends the wait. The
pointer does not move meanwhile, so waiting loses nothing, and every process may forget that it waits.

**What is only a hint.** The memory of the last minute (`Recent`), the time that a partition has waited, which process
holds it. Without them the decision rests on the slice alone.

What counts: records that the database refuses, by its error code, and records at which our own code fails. A record
that decoding rejects does not count: that verdict depends on nothing but the record and the mapping, waiting would not
change it, and no publisher of garbage may stop a partition.

    of the slice, more than the share is refused with one code
        at least `FEW` records                   wait
        fewer, and more may arrive               wait, until none has arrived for `PATIENCE_SECONDS`: under load they
                                                 do, and say whether the table or the record is at fault
        fewer, and none has arrived              bury, unless the last minute says otherwise
    of records that waited, some are accepted    wait once more: the table may have been repaired between two of them
    of the last minute and this slice, more than the share, and at least `FEW`
                                                 wait
    else                                         bury

Invariants:

1. Nothing is buried in a slice of which more than the share, and at least `FEW` records, are refused with one code.
2. Fewer than `FEW` refused records do not make a partition wait once no record has arrived for `PATIENCE_SECONDS`, and
   never for longer than a few seconds (`engines/holds.py`), unless the last minute, or the last `FEW` records where
   they are older, has as many.
3. With a share of 1 nothing ever waits.

Failure table:

| what happens                              | what follows                                                     |
|-------------------------------------------|------------------------------------------------------------------|
| one bad record among good ones            | it is buried at once                                             |
| one bad record, alone in its slice        | it waits a second for company, then it is buried                 |
| a broken trigger under load               | the first small slice waits, and its company shows that all are  |
|                                           | refused: the partition waits                                     |
| a broken trigger, a record now and then   | the first ones are buried, each after a second; at `FEW` in a    |
|                                           | row the partition waits                                          |
| the trigger is repaired                   | the next attempt, at most `LONGEST_PAUSE_SECONDS` later, passes  |
| it is repaired during such an attempt     | some of its records are accepted: it is rolled back and made     |
|                                           | once more; what is refused then is the record's fault            |
| bad records below the share, for ever     | they are buried, for ever: that is a publisher's fault           |
| bad records above the share, for ever     | the partition waits until the table, or the share, is changed    |
| the table is gone, or may not be written  | the partition waits at once: no record is at fault               |
| several codes, none above the share       | they are buried: a fault of the table has one code               |
| the process restarts                      | the last minute is forgotten; the slice decides, and at most     |
|                                           | `FEW` - 1 records are buried that would have waited              |
| two drivers                               | each waits by itself; the first that is accepted moves the       |
|                                           | pointer, and the other finds it moved                            |
| a run with `--once`                       | it does not wait: a small slice is decided at once, and a        |
|                                           | partition that would wait ends the run with the error            |
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from inorder.engines.slice_work import PATIENCE_SECONDS, Slice
from inorder.model.errors import ConfigurationError, MassRefusalError

FEW: Final = 10
"""So many refused records are evidence; fewer may be a publisher's mistake."""
WINDOW_SECONDS: Final = 60.0
_BUCKET_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Records that were offered to a table, and how many of them it refused, by code."""

    records: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.records + other.records, Counter(self.refused) + Counter(other.refused))


@dataclass(frozen=True, slots=True)
class Bury:
    """The refused records are the publisher's fault."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The table is at fault, or may be."""

    code: str
    refused: int
    records: int


Decision: TypeAlias = Bury | Wait


def decide(found: Tally, recent: Tally, share: float, waited_seconds: float) -> Decision:
    """Decides about the refused records of a slice; `recent` is what was committed in the last minute."""
    whole = recent + found
    for code in sorted(found.refused, key=lambda one: (-found.refused[one], one)):
        for tally in (found, whole):
            if tally.refused[code] >= FEW and _exceeds(tally, code, share):
                return Wait(code, tally.refused[code], tally.records)
    for code in found.refused:
        if waited_seconds < PATIENCE_SECONDS and _exceeds(found, code, share):
            return Wait(code, found.refused[code], found.records)
    return Bury()


def _exceeds(tally: Tally, code: str, share: float) -> bool:
    return tally.refused[code] > share * tally.records


class Recent:
    """What a table accepted and refused of one partition in the last minute, or of the last `FEW` records."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, Tally]] = deque()

    def add(self, tally: Tally, now: float) -> None:
        if self._buckets and now - self._buckets[-1][0] < _BUCKET_SECONDS:
            began, before = self._buckets.pop()
            self._buckets.append((began, before + tally))
        else:
            self._buckets.append((now, tally))
            self._forget(now)

    def total(self, now: float) -> Tally:
        self._forget(now)
        return sum((tally for _, tally in self._buckets), Tally())

    def _forget(self, now: float) -> None:
        """Drops what is older than the window, but for the last `FEW` records."""
        records = sum(tally.records for _, tally in self._buckets)
        while self._buckets and now - self._buckets[0][0] > WINDOW_SECONDS:
            if records - self._buckets[0][1].records < FEW:
                break
            records -= self._buckets.popleft()[1].records


class Brake:
    """The brake of one partition in one process; `check` is called inside the transaction, `commit` after it."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.share = share
        self._clock = clock
        self._recent = Recent()
        self._checked = Tally()
        self._is_settling = False
        """The last attempt of a partition that waits was refused in part, so it is made once more."""

    @property
    def is_on(self) -> bool:
        return self.share < 1

    def check(self, found: Tally, batch: Slice, sample: str) -> None:
        """Raises `MassRefusalError` where the partition waits; `sample` is the reason of one of the refusals."""
        self._checked = found
        was_settling, self._is_settling = self._is_settling, False
        if not (self.is_on and any(found.refused.values())):
            return
        match decide(found, self._recent.total(self._clock()), self.share, batch.waited_seconds):
            case Wait(code, refused, records):
                raise _mass_refusal(batch, code, refused, records, sample)
            case Bury():
                if batch.is_held and not was_settling and sum(found.refused.values()) < found.records:
                    self._is_settling = True
                    code = max(found.refused, key=found.refused.__getitem__)
                    raise _mass_refusal(batch, code, found.refused[code], found.records, sample, is_certain=False)

    def commit(self) -> None:
        """What was checked last is committed."""
        self._recent.add(self._checked, self._clock())
        self._checked = Tally()


def table_fault(batch: Slice, table: str, fault: ConfigurationError) -> MassRefusalError:
    """For a table that does not exist, that the job may not write, or whose trigger uses something that is gone."""
    error = MassRefusalError(
        f"{batch.topic}[{batch.partition}] waits at offset {batch.offsets[0]}: table {table!r} cannot be written:"
        f" {fault.message}",
        hint="Fix the table, its triggers or the privileges of the user. The job then goes on by itself.",
    )
    error.place, error.offset, error.is_certain = (batch.topic, batch.partition), batch.offsets[0], True
    return error


def _mass_refusal(
    batch: Slice, code: str, refused: int, records: int, sample: str, *, is_certain: bool = True
) -> MassRefusalError:
    error = MassRefusalError(
        f"{batch.topic}[{batch.partition}] waits at offset {batch.offsets[0]}: {refused} of {records} records are"
        f" refused with code {code}, for example: {sample}",
        hint="Fix the table: a trigger, a missing partition, a new constraint. The job then goes on by itself. If the"
        " records are at fault, set `max_refused_share = 1` for the table and start the job again: they become dead"
        " letters.",
    )
    error.place, error.offset = (batch.topic, batch.partition), batch.offsets[0]
    error.is_certain = is_certain and refused >= FEW
    return error
