"""Which records the database refuses: found by halving the write, inside the one transaction of the slice.

A bulk write that is refused says little about which row is to blame, so it is halved until single rows are refused. All
others are written. Where the store has a quick way to write rows one by one (`SliceTransaction.upsert_each`), halving
ends at a few dozen: with one bad row in five, nearly every half would be refused down to the last.

Then each refused row is tried again, after everything else of the slice is there: a row that had to wait for another
one passes now. What is still refused is taken apart, and its records are tried one after the other in offset order.
Those that are refused by themselves become dead letters, with the database's words as the reason.

Only `RejectedError` counts as a refusal. Whatever says that the environment failed goes on to the caller, so no dead
letter is ever made because a disk is full or a server is shutting down.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from inorder.model.errors import RejectedError
from inorder.pipeline.decoding import changes_of, dead_letter
from inorder.pipeline.mapping import TableMapping
from inorder.ports.slice_work import Slice
from inorder.ports.table_store import DeadLetter, FoldedRow, RowKey, SliceTransaction, Written

logger = logging.getLogger("inorder.pipeline")

REFUSED = "refused-by-database"

_FEW = 64
"""So many rows are not halved any more where the store writes them one by one as quickly."""
_FLOOD = 100
"""With more rows refused than this, something is wrong with all of them; trying again would only take time."""
_LOGGED = 20
"""Records of one slice that have a line of their own in the log."""


@dataclass(slots=True)
class Isolation:
    """One slice, written row by row where it must be."""

    transaction: SliceTransaction
    mapping: TableMapping
    batch: Slice
    from_offset: int
    generation: int
    written: Written = field(default_factory=Written)
    letters: list[DeadLetter] = field(default_factory=list)
    _refused: list[tuple[FoldedRow, str]] = field(default_factory=list)
    """Rows that are refused by themselves, each with why."""

    def write(self, rows: Sequence[FoldedRow]) -> None:
        """Writes what the database takes; what it refuses is in `letters` afterwards."""
        self._halve(rows)
        for _ in range(self.mapping.max_attempts - 1):
            if len(self._refused) > _FLOOD:
                break
            again, self._refused = self._refused, []
            for row, _ in again:
                self._try_alone(row)
        for row, reason in self._refused:
            if row.records == 1 and self.mapping.mode == "upsert":
                self._bury(bisect_left(self.batch.offsets, row.offset), reason)
        if several := {row.key for row, _ in self._refused if row.records > 1 or self.mapping.mode != "upsert"}:
            self._one_by_one(several)

    def _halve(self, rows: Sequence[FoldedRow]) -> None:
        if len(rows) == 1:
            self._try_alone(rows[0])
        elif rows and self._tried(rows) is not None and not (len(rows) <= _FEW and self._wrote_each(rows)):
            middle = len(rows) // 2
            self._halve(rows[:middle])
            self._halve(rows[middle:])

    def _wrote_each(self, rows: Sequence[FoldedRow]) -> bool:
        """Writes row by row where the store has a quick way; whether it has."""
        ended = self.transaction.upsert_each(rows, self.generation)
        if ended is None:
            return False
        for row, outcome in zip(rows, ended, strict=True):
            if isinstance(outcome, RejectedError):
                self._refused.append((row, outcome.message))
            else:
                self.written += outcome
        return True

    def _try_alone(self, row: FoldedRow) -> None:
        if (reason := self._tried([row])) is not None:
            self._refused.append((row, reason))

    def _one_by_one(self, keys: set[RowKey]) -> None:
        """Of these keys every record by itself, those that the fold left out as well."""
        for index, (key, offset, values) in changes_of(keys, self.from_offset, self.mapping, self.batch):
            if (reason := self._tried([FoldedRow(key, values, offset, 1)])) is not None:
                self._bury(index, reason)

    def _bury(self, index: int, reason: str) -> None:
        self.letters.append(dead_letter(self.batch, index, REFUSED, reason))
        self._log(self.batch.offsets[index], reason)

    def _log(self, offset: int, reason: str) -> None:
        # A flood must not fill the log as well; the dead letters have them all.
        if len(self.letters) <= _LOGGED:
            place = (self.mapping.pipeline, self.batch.topic, self.batch.partition, offset)
            logger.warning(
                "pipeline.record_refused pipeline=%s topic=%s partition=%d offset=%d reason=%s", *place, reason
            )

    def _tried(self, rows: Sequence[FoldedRow]) -> str | None:
        """None where the rows are written, else why not."""
        try:
            with self.transaction.isolated():
                written = self.transaction.upsert(rows, self.generation)
        except RejectedError as error:
            return error.message
        self.written += written
        return None
