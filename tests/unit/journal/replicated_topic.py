"""One partition of a topic in memory, and the state of its journals: the model that a store must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias

from inorder.engines.slice_work import Slice
from inorder.journal.action import Append, Delete, Mark, Purge
from inorder.journal.codec import RecordSender, action_of, action_record, append_record, events_of
from inorder.journal.life import Life, after_append, after_delete, separate_forks
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Event, Key, PayloadMetadata, RecordMetadata, SeqRange
from inorder.model.message import Limits, Record
from tests.fakes.replica import MemoryReplica
from tests.unit.journal.acting import TIME

TOPIC = "journal"
DAMAGED_HEADER = (("journal.action", b"{not json"),)

Seen: TypeAlias = tuple[int, tuple[tuple[int, int], ...]] | None
"""A journal as a reader sees it: its last number, and (seq_nr, offset) of its events. None is no journal."""


def key(id: str) -> Key:
    return Key(id, TOPIC)


@dataclass
class Topic:
    """Records in the order in which they were written; each verb writes one."""

    records: list[Record] = field(default_factory=list)

    def append(self, id: str, *seq_nrs: int, expire_after: timedelta | None = None) -> None:
        about = RecordMetadata(payload=PayloadMetadata(expire_after=expire_after))
        events = [Event(number) for number in seq_nrs]
        self.records.append(append_record(key(id), events, TIME, RecordSender("host"), about, {}, Limits()))

    def delete(self, id: str, to: int) -> None:
        self.records.append(action_record(key(id), Delete(to, "host"), TIME, Limits()))

    def purge(self, id: str) -> None:
        self.records.append(action_record(key(id), Purge("host"), TIME, Limits()))

    def mark(self, id: str) -> None:
        self.records.append(action_record(key(id), Mark("mark", "host"), TIME, Limits()))

    def foreign(self) -> None:
        self.records.append(Record(TOPIC, b"a", b"what?", (), None, 0))

    def damaged_header(self, id: str) -> None:
        self.records.append(Record(TOPIC, id.encode(), b"", DAMAGED_HEADER, None, 0))

    def damaged_events(self, id: str, seq_nr: int) -> None:
        self.append(id, seq_nr)
        self.records[-1] = replace(self.records[-1], value=b"\x00damaged")

    def mend(self, offset: int, id: str, *seq_nrs: int) -> None:
        """Makes a record readable, as a newer version might find it."""
        self.append(id, *seq_nrs)
        self.records[offset] = self.records.pop()

    def slice(self, first: int, end: int) -> Slice:
        """The records from one offset up to, not including, another."""
        chosen = self.records[first:end]
        return Slice(
            TOPIC,
            0,
            range(first, first + len(chosen)),
            [each.key for each in chosen],
            [each.value for each in chosen],
            [None if each.timestamp_ms is None else each.timestamp_ms * 1000 for each in chosen],
            [each.headers for each in chosen],
        )

    def chunks(self, first: int, sizes: Iterable[int]) -> Iterator[Slice]:
        """All records from an offset on, in slices of these sizes and then one by one."""
        sizes = iter(sizes)
        while first < len(self.records):
            end = first + next(sizes, 1)
            yield self.slice(first, end)
            first = end

    def says(self, id: str) -> Seen:
        """What the actions of a journal amount to; raises `DamagedRecordError` where it is parked."""
        life: Life | None = None
        events: dict[int, int] = {}
        damage: DamagedRecordError | None = None
        for offset, each in enumerate(self.records):
            if each.key != id.encode():
                continue
            record = LogRecord(offset, each.timestamp_ms, each.key, each.value, each.headers)
            try:
                action = action_of(record, TOPIC, 0)
                if isinstance(action, Purge):
                    life, events, damage = None, {}, None
                elif damage is None and isinstance(action, Append):
                    kept = separate_forks(life.end if life else 0, events_of(action, record, TOPIC, 0)).kept
                    if kept:
                        life = after_append(life, SeqRange(kept[0].seq_nr, kept[-1].seq_nr))
                    events |= {event.seq_nr: offset for event in kept}
                elif damage is None and isinstance(action, Delete):
                    life = after_delete(life, action.to)
            except DamagedRecordError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        if life is None:
            return None
        return life.seq_nr, tuple((nr, at) for nr, at in events.items() if nr > life.delete_to)


def shows(store: MemoryReplica, id: str) -> Seen:
    """What a reader of the store sees; raises `DamagedRecordError` where the journal is parked."""
    head = store.pointer(key(id))
    if head is None:
        return None
    return head.seq_nr, tuple((event.seq_nr, event.offset) for event in store.read(key(id), head, 1))
