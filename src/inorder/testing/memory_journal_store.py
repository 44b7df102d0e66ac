"""A journal store in memory: it carries out the statements of `transition` and is read like the real ones."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never
from uuid import UUID

from inorder.journal.expiry import changed_expiry
from inorder.journal.replication.statements import (
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    Statement,
    UpdateHead,
)
from inorder.journal.segments import journal_segment
from inorder.model.errors import GuaranteeError
from inorder.model.journal import EventRecord, Key, SeqNr
from inorder.ports.journal_store import JournalHead


@dataclass(slots=True)
class _Rows:
    """The rows of one journal."""

    head: JournalHead | None = None
    segments: dict[int, dict[tuple[SeqNr, UUID | None], EventRecord]] = field(default_factory=dict)


class MemoryJournalStore:
    """`keeps_rows` deletes no events, as if every such statement were lost: what is visible must be the same."""

    def __init__(self, *, keeps_rows: bool = False) -> None:
        self._journals: dict[Key, _Rows] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._keeps_rows = keeps_rows

    def pointer(self, key: Key) -> JournalHead | None:
        """The head."""
        rows = self._journals.get(key)
        return None if rows is None else rows.head

    def offset(self, topic: str, partition: int) -> int | None:
        """The replicated offset."""
        return self._offsets.get((topic, partition))

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """The visible events, segment by segment."""
        start = max(from_seq_nr, (head.delete_to or 0) + 1)
        segments = self._journals[key].segments
        first, last = (journal_segment(number, head.segment_size) for number in (start, head.seq_nr))
        reached = 0
        for segment in sorted(number for number in segments if first <= number <= last):
            rows = sorted(segments.get(segment, {}).items(), key=lambda row: row[0][0])
            for (seq_nr, record_id), record in rows:
                if record_id != head.record_id or not start <= seq_nr <= head.seq_nr:
                    continue
                if seq_nr == reached:
                    raise GuaranteeError(f"seq_nr {seq_nr} of {key} is there twice.")
                reached = seq_nr
                yield record

    def ids(self, topic: str) -> Iterator[str]:
        """Journals with a head."""
        return (key.id for key, rows in list(self._journals.items()) if key.topic == topic and rows.head)

    def close(self) -> None:
        """Nothing is held."""

    def carry_out(self, key: Key, statements: Iterable[Statement]) -> None:
        """Writes what an action leads to."""
        rows = self._journals.setdefault(key, _Rows())
        for statement in statements:
            self._carry_out(rows, statement)

    def move_offset(self, topic: str, partition: int, offset: int) -> None:
        """Says that all up to an offset is applied; it never goes back."""
        self._offsets[topic, partition] = max(offset, self._offsets.get((topic, partition), 0))

    def _carry_out(self, rows: _Rows, statement: Statement) -> None:
        match statement:
            case InsertEvents():
                segment = rows.segments.setdefault(statement.segment, {})
                segment.update({(event.seq_nr, statement.record_id): event for event in statement.events})
            case InsertHead():
                rows.head = statement.head
            case UpdateHead():
                rows.head = rows.head and updated_head(rows.head, statement)
            case DeleteEvents():
                if not self._keeps_rows:
                    _delete(rows, statement)
            case DeleteHead():
                rows.head = None
            case _:
                assert_never(statement)


def updated_head(head: JournalHead, update: UpdateHead) -> JournalHead:
    """The head with the columns of an update."""
    delete_to = None if update.clears_delete_to else update.delete_to or head.delete_to
    return replace(
        head,
        partition_offset=update.partition_offset,
        seq_nr=update.seq_nr or head.seq_nr,
        delete_to=delete_to,
        record_id=update.record_id or head.record_id,
        expiry=changed_expiry(head.expiry, update.expiry),
    )


def _delete(rows: _Rows, statement: DeleteEvents) -> None:
    first, last = statement.segments
    for segment in [number for number in rows.segments if first <= number <= last]:
        if segment == last and statement.to is not None:
            left = {row: event for row, event in rows.segments[segment].items() if row[0] > statement.to}
            rows.segments[segment] = left
        else:
            del rows.segments[segment]
