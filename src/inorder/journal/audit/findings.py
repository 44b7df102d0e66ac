"""What an audit finds in a store, with coordinates: differences, which violate the guarantee, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from inorder.journal.stores.ports import JournalHead
from inorder.journal.stores.rows import (
    EventColumns,
    PayloadColumns,
    decode_metadata,
    decode_payload,
    event_columns,
    without_own_headers,
)
from inorder.model.errors import PermanentError
from inorder.model.journal import EventRecord, Key, PartitionOffset, SeqNr

MAX_SHOWN: Final = 200
"""How many characters of a long value are shown."""


class FindingKind(StrEnum):
    missing_event = "missing event"
    surplus_event = "surplus event"
    foreign_life = "event of another life"
    different_event = "different event"
    wrong_head = "wrong head"
    missing_journal = "missing journal"
    surplus_journal = "surplus journal"
    not_in_quarantine = "record not in quarantine"
    not_in_topic = "quarantined record not in the topic"
    wrong_offset = "wrong offset"
    lost_records = "records lost before replication"
    more = "more differences"
    parked = "parked journal"
    fork = "fork"
    hidden_rows = "hidden rows"
    moved = "journal in several partitions"
    unsettled = "journal that kept changing"

    @property
    def is_difference(self) -> bool:
        """Whether it violates the guarantee; else it is a note."""
        return self not in _NOTES


_NOTES: Final = frozenset(
    (FindingKind.parked, FindingKind.fork, FindingKind.hidden_rows, FindingKind.moved, FindingKind.unsettled)
)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One finding; None stands for what is unknown or absent."""

    kind: FindingKind
    topic: str
    id: str | None = None
    partition: int | None = None
    offset: int | None = None
    seq_nr: int | None = None
    in_topic: str | None = None
    in_store: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AuditFinding:
        chosen = {each.name: values[each.name] for each in fields(cls)}
        return cls(**chosen | {"kind": FindingKind(chosen["kind"])})


def describe_head(head: JournalHead) -> str:
    expiry = "" if head.expiry is None else f", expires on {head.expiry.on} ({head.expiry.after})"
    deleted = f", deleted to {head.delete_to}" if head.delete_to else ""
    return f"ends at {head.seq_nr}{deleted}, at {head.partition_offset}{expiry}"


def describe_event(columns: EventColumns) -> str:
    payload = columns.payload_txt if columns.payload_bin is None else columns.payload_bin
    return f"at {columns.partition}:{columns.offset}, payload {_shorten(payload)}"


def describe_columns(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_shorten(value)}" for name, value in values.items())


def find_differences(event: EventRecord, segment: int, row: StoredRow) -> list[str]:
    """The columns in which a row differs from its record; another spelling of the same JSON is no difference."""
    ours = event_columns(event)
    found = [] if row.segment == segment else ["segment"]
    found += [] if row.timestamp == event.timestamp else ["timestamp"]
    if row.columns == ours:
        return found
    theirs = row.columns._replace(headers=without_own_headers(row.columns.headers))
    names = [name for name in EventColumns._fields if getattr(ours, name) != getattr(theirs, name)]
    if "metadata" in names and _same_metadata(ours.metadata, row.columns.metadata):
        names.remove("metadata")
    if names == ["payload_txt"] and _same_payload(ours, row.columns):
        names.remove("payload_txt")
    return found + names


def select_columns(names: list[str], columns: EventColumns, segment: int, timestamp: object) -> dict[str, object]:
    values = {**columns._asdict(), "segment": segment, "timestamp": timestamp}
    return {name: values[name] for name in names}


def _same_metadata(ours: str, stored: str | None) -> bool:
    try:
        return decode_metadata(ours) == decode_metadata(stored)
    except ValueError:
        return False


def _same_payload(ours: EventColumns, stored: EventColumns) -> bool:
    try:
        return _payload(ours) == _payload(stored)
    except PermanentError:
        return False


def _payload(columns: EventColumns) -> object:
    return decode_payload(PayloadColumns(columns.payload_type, columns.payload_txt, columns.payload_bin))


def _shorten(value: object) -> str:
    text = repr(
        sorted(value)
        if isinstance(value, frozenset)
        else value
        if value is None or isinstance(value, bytes)
        else str(value)
    )
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class StoredRow(NamedTuple):
    """A row of the table `journal`, not decoded: the audit decides what is wrong with it."""

    segment: int
    seq_nr: SeqNr
    timestamp: datetime
    record_id: UUID | None
    columns: EventColumns

    @property
    def place(self) -> PartitionOffset:
        """The record that it claims to come from."""
        return PartitionOffset(self.columns.partition, self.columns.offset)


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a store has of one journal at a moment: its head, and which of its records are in quarantine."""

    head: JournalHead | None = None
    waiting: frozenset[PartitionOffset] = frozenset()


class JournalRows(Protocol):
    """What an audit needs of a store: all its rows, also those that no reader sees. Used by one thread at a time."""

    def states(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        """What the store has of journals of one topic; those it does not know are left out."""

    def rows(self, key: Key, head: JournalHead | None) -> Iterator[StoredRow]:
        """The rows of a journal of any life by segment, number and time, page by page.

        A store that can only be queried segment by segment returns the segments of the head and one more at either
        end, or the first two if there is no head.
        """

    def offset(self, topic: str, partition: int) -> int | None:
        """The partition's replicated offset; None before the first."""

    def ids(self, topic: str) -> Iterator[str]:
        """The ids of all journals of a topic that have a head."""

    def close(self) -> None:
        """Releases connections; may be used again afterwards."""
