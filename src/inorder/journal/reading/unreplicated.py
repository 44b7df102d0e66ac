"""The log's records of one journal, replayed over the store's head, and kept as long as they are few."""

from __future__ import annotations

from typing import Final, NamedTuple

from inorder.journal.action import Append, Purge
from inorder.journal.codec.records import action_of
from inorder.journal.reading.plan import Plan, Replay
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import SeqNr
from inorder.ports.journal_log import LogRecord, Window
from inorder.ports.journal_store import JournalHead

RECORD_BYTES: Final = 1_000
"""What a record of no bytes takes while it is kept, with its action and headers: many small ones are large, too."""


class Appended(NamedTuple):
    """An append and the record that has its events, not decoded yet."""

    action: Append
    record: LogRecord


class Unreplicated:
    """Takes the records of a window in offset order; one that is met twice counts once."""

    def __init__(self, head: JournalHead | None, window: Window, from_seq_nr: SeqNr, limit_bytes: int) -> None:
        self._replay = Replay.over(head)
        self._window = window
        self._from = from_seq_nr
        self._left = self._limit = limit_bytes
        self._kept: list[Appended] | None = []
        self._damage: DamagedRecordError | None = None
        self._last = -1

    def take(self, record: LogRecord) -> None:
        """Applies the next record."""
        if record.offset <= self._last:
            return
        self._last = record.offset
        try:
            action = action_of(record, self._window.topic, self._window.partition)
        except DamagedRecordError as error:
            # Only a purge makes it certain that whatever this was does not matter.
            self._damage = self._damage or error
            return
        if action is None:
            return
        self._replay = self._replay.then(action, record.offset)
        if isinstance(action, Purge):
            self._damage, self._kept, self._left = None, [], self._limit
        elif isinstance(action, Append) and action.range.last >= self._from:
            self._keep(Appended(action, record))

    def plan(self) -> Plan:
        """What the records lead to; raises `DamagedRecordError` if one of them cannot be read."""
        if self._damage is not None:
            raise self._damage
        return self._replay.plan

    @property
    def kept(self) -> list[Appended] | None:
        """The appends since the last purge that matter, in order; None if they were too large to be kept."""
        return self._kept

    def _keep(self, appended: Appended) -> None:
        self._left -= RECORD_BYTES + len(appended.record.value or b"")
        if self._kept is not None and self._left >= 0:
            self._kept.append(appended)
        else:
            self._kept = None
