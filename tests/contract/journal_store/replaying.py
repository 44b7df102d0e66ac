"""A replicator in miniature: actions of one journal, written to a store the way the real one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from inorder.engines.slice_work import Slice
from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.codec import RecordSender, action_record, append_record
from inorder.journal.replication.actions import SliceSource, group_by_journal, replicate_journal
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.replication.store_port import JournalReplica
from inorder.journal.stores.ports import EventualJournal
from inorder.model.journal import Event, EventRecord, Key, Payload, PayloadMetadata, RecordMetadata
from inorder.model.message import Limits, Record

START = datetime(2026, 1, 1, tzinfo=UTC)
SENDER = RecordSender("host", "1.2.3")


@dataclass
class Replicating:
    """Writes actions at offsets of its own choice, one slice for each call."""

    replica: JournalReplica
    store: EventualJournal
    key: Key
    segment_size: int
    partition: int = 0
    offset: int = 0
    _waiting: list[tuple[int, Record]] = field(default_factory=list)

    def append(
        self,
        *seq_nrs: int,
        payload: Payload = None,
        tags: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        metadata: RecordMetadata | None = None,
        expire_after: timedelta | None = None,
        key: Key | None = None,
    ) -> None:
        events = [Event(number, payload, frozenset(tags)) for number in seq_nrs]
        about = metadata or RecordMetadata(payload=PayloadMetadata(expire_after=expire_after))
        record = append_record(key or self.key, events, self._now(), SENDER, about, headers or {}, Limits())
        self._add(record)

    def delete(self, to: int, *, key: Key | None = None) -> None:
        self._act(Delete(to, "host"), key)

    def purge(self, *, key: Key | None = None) -> None:
        self._act(Purge("host"), key)

    def mark(self) -> None:
        self._act(Mark(f"mark {self.offset}", "host"), None)

    def foreign(self) -> None:
        """A record that is none of ours."""
        self._add(Record(self.key.topic, b"x", b"y", (), None, 0))

    def flush(self) -> None:
        """Replicates what was not yet, as one slice."""
        waiting, self._waiting = self._waiting, []
        self.replicate(slice_of(self.key.topic, self.partition, waiting))

    def replicate(self, batch: Slice) -> None:
        """Replicates a slice, perhaps one that was already."""
        ReplicateWorker(self.replica, self.segment_size).apply(batch, expected=0)

    @contextmanager
    def carrying_out(self, records: Sequence[tuple[int, Record]]) -> Iterator[None]:
        """A slice whose journals are written and whose offset is not moved yet."""
        batch = slice_of(self.key.topic, self.partition, records)
        place = SliceSource(batch.topic, batch.partition, self.segment_size)
        with self.replica.slice(batch.topic, batch.partition) as transaction:
            applied = transaction.lock_offset()
            found = group_by_journal(batch, -1 if applied is None else applied)
            assert not found.damaged
            heads = transaction.heads(list(found.journals))
            changes = [
                replicate_journal(place, key, heads.get(key), acted).change for key, acted in found.journals.items()
            ]
            transaction.carry_out([change for change in changes if change.statements])
            yield

    def seen(self, from_seq_nr: int = 1, key: Key | None = None) -> list[int]:
        """The numbers that a reader of the store sees."""
        return [event.seq_nr for event in self.events(from_seq_nr, key)]

    def events(self, from_seq_nr: int = 1, key: Key | None = None) -> list[EventRecord]:
        head = self.store.pointer(key or self.key)
        return [] if head is None else list(self.store.read(key or self.key, head, from_seq_nr))

    def pointer(self) -> tuple[int, int] | None:
        """Offset and number of the journal's head."""
        head = self.store.pointer(self.key)
        return None if head is None else (head.partition_offset.offset, head.seq_nr)

    def _act(self, action: Action, key: Key | None) -> None:
        assert not isinstance(action, Append)
        self._add(action_record(key or self.key, action, self._now(), Limits()))

    def _add(self, record: Record) -> None:
        self._waiting.append((self.offset, record))
        self.offset += 1

    def _now(self) -> datetime:
        return START + timedelta(seconds=self.offset)


def slice_of(topic: str, partition: int, records: Sequence[tuple[int, Record]]) -> Slice:
    return Slice(
        topic,
        partition,
        offsets=[offset for offset, _ in records],
        keys=[record.key for _, record in records],
        values=[record.value for _, record in records],
        timestamps=[None if record.timestamp_ms is None else record.timestamp_ms * 1000 for _, record in records],
        headers=[record.headers for _, record in records],
    )
