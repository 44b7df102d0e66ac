"""Partitions that wait because their table refuses most records, while the other partitions go on.

A work raises `MassRefusalError` where one partition is to wait (`pipeline/brake.py`). The engine then applies no later
record of it, or the pointer would pass the refused ones, and tries its next records again after a pause. All this is
in memory only: a process that ends forgets it, and its successor begins at the pointer and meets the same refusal.

While the work is not certain that the table is at fault, because few records are refused yet, they are tried again
every `PATIENCE_SECONDS`, together with those that arrived meanwhile. Once it is certain, the partition is reported as
waiting, and pauses double up to `LONGEST_PAUSE_SECONDS`. Each attempt is made with the first few records only
(`HEAD_RECORDS`), so that the other partitions of the task are not delayed.

`--once` does not wait: the partition is given up, the others are read to their end, and the run ends with the error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from inorder.engines.progress import Listener
from inorder.engines.slice_work import PATIENCE_SECONDS, PORTION_BYTES, Slice, from_offset, head_of, jittered, joined
from inorder.model.errors import MassRefusalError
from inorder.model.partitioning import Place

HEAD_RECORDS: Final = 100
LONGEST_PAUSE_SECONDS: Final = 10.0
LONGEST_PATIENCE_SECONDS: Final = 10.0
"""How long a few refused records wait at most for more of them."""


@dataclass
class _Hold:
    error: MassRefusalError
    since: float
    grown_at: float
    """When a record was last added to those that are tried."""
    due: float
    next_offset: int | None = None
    """The end of the records that were tried last."""
    pause: float = PATIENCE_SECONDS
    head: Slice | None = None
    """The next records of the partition, as far as they were read; None if they are read for each attempt."""
    is_cut: bool = False
    """Records behind the head were dropped, so the partition must be read again from its pointer."""


class Holds:
    """The partitions of a task or of a run that wait. Any thread may ask; one at a time changes it."""

    def __init__(
        self,
        listener: Listener,
        *,
        once: bool = False,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float], float] = jittered,
    ) -> None:
        self._listener = listener
        self._once = once
        self._clock = clock
        self._jitter = jitter
        self._holds: dict[Place, _Hold] = {}

    def __contains__(self, place: object) -> bool:
        return place in self._holds

    @property
    def places(self) -> list[Place]:
        return list(self._holds)

    @property
    def errors(self) -> list[MassRefusalError]:
        return [hold.error for hold in self._holds.values()]

    def waited(self, place: Place) -> float:
        """For how long a partition waits and no record of it arrived; infinite where it is not to wait any longer."""
        hold, now = self._holds.get(place), self._clock()
        if self._once or (hold is not None and now - hold.since >= LONGEST_PATIENCE_SECONDS):
            return math.inf
        return 0.0 if hold is None else now - hold.grown_at

    def saw(self, place: Place, next_offset: int) -> None:
        """The records that are tried now end here."""
        hold = self._holds[place]
        if hold.next_offset is None or next_offset > hold.next_offset:
            hold.next_offset, hold.grown_at = next_offset, self._clock()

    def hold(self, place: Place, error: MassRefusalError, refused: Slice | None = None) -> None:
        """Makes a partition wait, or wait on; `refused` is the slice that its table refuses."""
        now = self._clock()
        hold = self._holds.get(place)
        if hold is None:
            hold = self._holds[place] = _Hold(error, now, now, now + PATIENCE_SECONDS)
            if refused is not None:
                # A large slice is applied in pieces, so its first records may be applied.
                left = from_offset(refused, error.offset)
                hold.head, hold.is_cut = head_of(left, HEAD_RECORDS), len(left) > HEAD_RECORDS
        elif error.is_certain:
            hold.error, hold.due = error, now + self._jitter(hold.pause)
            hold.pause = min(2 * hold.pause, LONGEST_PAUSE_SECONDS)
        else:
            hold.error, hold.due = error, now + PATIENCE_SECONDS
        if self._once or error.is_certain:
            self._listener.waits(place, error)

    def keep(self, batch: Slice) -> None:
        """Takes later records of a partition that waits: a few are tried together with those before them."""
        hold = self._holds[batch.topic, batch.partition]
        if hold.head is None or hold.is_cut:
            return
        if _is_full(hold.head):
            hold.is_cut = batch.next_offset > hold.head.next_offset
            return
        whole = joined(hold.head, batch)
        if len(whole) > len(hold.head):
            hold.grown_at = self._clock()
        hold.head, hold.is_cut = head_of(whole, HEAD_RECORDS), len(whole) > HEAD_RECORDS

    def due(self) -> Iterator[Place]:
        """The partitions to try again now."""
        now = self._clock()
        for place, hold in list(self._holds.items()):
            if not self._once and now >= hold.due:
                yield place

    def due_heads(self) -> Iterator[Slice]:
        """The records to try again now, with how long they have waited."""
        for place in self.due():
            if (head := self._holds[place].head) is not None:
                yield replace(head, waited_seconds=self.waited(place), is_held=True)

    def postpone(self, place: Place) -> None:
        """The partition could not be tried: something else is away."""
        self._holds[place].due = self._clock() + self._jitter(PATIENCE_SECONDS)

    def release(self, place: Place) -> bool:
        """Ends a wait; returns whether the partition must be read again from its pointer."""
        return self._holds.pop(place).is_cut

    def read_again(self) -> None:
        """All partitions are read from their pointers again, so nothing behind their heads is dropped."""
        for hold in self._holds.values():
            hold.is_cut = False


def _is_full(head: Slice) -> bool:
    return len(head) >= HEAD_RECORDS or sum(len(value or b"") for value in head.values) >= PORTION_BYTES
