"""One partition of a topic in memory, and the state of its journals: the model that a store must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias

from inorder.engines.slice_work import Slice
from inorder.journal.action import Append, Condition, Delete, Mark, Purge
from inorder.journal.codec import (
    APPEND_HEADER,
    CONDITION_HEADER,
    RecordSender,
    action_of,
    action_record,
    append_record,
    events_of,
)
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Event, Key, PartitionOffset, PayloadMetadata, RecordMetadata
from inorder.model.message import Limits, Record
from tests.fakes.replica import MemoryReplica
from tests.unit.journal.acting import TIME
from tests.unit.journal.reference import Reference

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
    views: dict[str, Condition] = field(default_factory=dict)
    """What a writer has last seen of a journal."""

    def append(
        self,
        id: str,
        *seq_nrs: int,
        expire_after: timedelta | None = None,
        append_id: str | None = None,
        condition: Condition | None = None,
    ) -> None:
        """An append as the original writes it, unless it has an id."""
        about = (TIME, RecordSender("host"), RecordMetadata(payload=PayloadMetadata(expire_after=expire_after)))
        events = [Event(number) for number in seq_nrs]
        self.records.append(
            append_record(key(id), events, *about, {}, Limits(), append_id=append_id, condition=condition)
        )

    def look(self, id: str) -> None:
        """Writes a mark, and remembers what is there; nothing if the journal cannot be read."""
        self.mark(id)
        with suppress(DamagedRecordError):
            found = self.read(id)
            self.views[id] = Condition(found.name, found.pointer or 0, PartitionOffset(0, len(self.records) - 1))

    def append_after(self, id: str, count: int) -> None:
        """An append on what was last seen."""
        if (seen := self.views.get(id)) is not None:
            first = (seen.seq_nr or 0) + 1
            numbers, number = range(first, first + count), len(self.records)
            self.append(id, *numbers, append_id=f"append {number}", condition=replace(seen, seen=None))

    def act_on(self, id: str, action: Delete | Purge) -> None:
        """A delete or purge of the life that its writer has just seen."""
        self.look(id)
        if (seen := self.views.get(id)) is not None:
            action = replace(action, condition=replace(seen, seq_nr=None))
            self.records.append(action_record(key(id), action, TIME, Limits()))

    def repeat(self, id: str) -> None:
        """The last record with a condition or an id once more: its answer was lost."""
        names = {APPEND_HEADER, CONDITION_HEADER}
        own = [each for each in self.records if each.key == id.encode() and names & {name for name, _ in each.headers}]
        self.records += own[-1:]

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
        found = self.read(id)
        return None if found.pointer is None else (found.pointer, tuple(found.events.items()))

    def read(self, id: str) -> Reference:
        found, damage = Reference(key(id)), None
        for offset, each in enumerate(self.records):
            if each.key != id.encode():
                continue
            record = LogRecord(offset, each.timestamp_ms, each.key, each.value, each.headers)
            try:
                action = action_of(record, TOPIC, 0)
                events = events_of(action, record, TOPIC, 0) if isinstance(action, Append) else []
            except DamagedRecordError as error:
                damage = damage or error
                continue
            if damage is not None and isinstance(action, Purge) and found.frees(action):
                found, damage = Reference(key(id)), None
            elif damage is None and action is not None:
                found.take(offset, action, [event.seq_nr for event in events])
        if damage is not None:
            raise damage
        return found


def shows(store: MemoryReplica, id: str) -> Seen:
    """What a reader of the store sees; raises `DamagedRecordError` where the journal is parked."""
    head = store.pointer(key(id))
    if head is None:
        return None
    return head.seq_nr, tuple((event.seq_nr, event.offset) for event in store.read(key(id), head, 1))
