"""Journals for an operator: one of them, as its topic has it and as the store has it, and the list of a topic.

A look at a journal reads as applications do, so it is right however far the store is behind: it sends a mark, which
changes nothing (`journal/reading/reader.py`). Only topics that exist and hold journals are looked at: a mark to any
other name could create a topic.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from inorder.journal.client import JournalClient
from inorder.journal.stores.ports import JournalFilter, JournalHead, ListedJournal
from inorder.model.errors import ConfigurationError, DamagedRecordError
from inorder.model.journal import (
    MAX_SEQ_NR,
    MIN_SEQ_NR,
    DeleteTo,
    EventRecord,
    Key,
    Payload,
    SeqNr,
    check_seq_nr,
    json_value,
    payload_type,
)
from inorder.operate.fields import readable

SHOWN_EVENTS: Final = 20
MOST_EVENTS: Final = 100
"""Each may have a payload of a megabyte."""


@dataclass(frozen=True, slots=True)
class JournalView:
    """A journal at one moment."""

    key: Key
    seq_nr: SeqNr | None = None
    """The pointer, by the topic; None if there is no journal."""
    delete_to: DeleteTo | None = None
    head: JournalHead | None = None
    """What the store has of it; of an earlier life if a purge is not replicated yet."""
    partition: int | None = None
    replicated: int | None = None
    """The offset up to which the store has the partition."""
    parked: str = ""
    """Why it cannot be read, as a journal in quarantine; then nothing else is known."""
    first: SeqNr = MIN_SEQ_NR
    """The number from which events were read."""
    events: tuple[EventRecord, ...] = ()

    @property
    def is_stored(self) -> bool:
        """Whether the store has the journal as it is."""
        stored = (None, None) if self.head is None else (self.head.seq_nr, self.head.delete_to)
        return stored == (self.seq_nr, self.delete_to)


@dataclass(frozen=True, slots=True)
class JournalLookup:
    """Looks journals up. The parts connect when they are first used."""

    client: Callable[[], JournalClient]
    listed: Callable[[str, JournalFilter], Iterator[ListedJournal]]
    topics: Callable[[], tuple[str, ...]]

    def look_up(self, topic: str, id: str, first: SeqNr | None = None, most: int = SHOWN_EVENTS) -> JournalView:
        """A journal with at most `most` of its numbers: those from `first` on, or the last ones."""
        self._require(topic)
        key, client, most = Key(id, topic), self.client(), max(1, min(most, MOST_EVENTS))
        try:
            mark, moment = client.moment(key)
            life, head = moment.plan.life, client.store.pointer(key)
            if first is None:
                first = MIN_SEQ_NR if life is None else max(MIN_SEQ_NR, life.seq_nr - most + 1)
            last = min(check_seq_nr(first, "from") + most - 1, MAX_SEQ_NR)
            events = () if life is None else tuple(client.journal(key).read(first, last))
        except DamagedRecordError as error:
            return JournalView(key, parked=error.message)
        return JournalView(
            key,
            None if life is None else life.seq_nr,
            None if life is None else life.delete_to or None,
            head,
            mark.partition,
            client.store.offset(topic, mark.partition),
            first=first,
            events=events,
        )

    def find(self, topic: str, where: JournalFilter, most: int) -> tuple[list[ListedJournal], bool]:
        """The first journals of a topic in the order of the store, and whether there are more."""
        self._require(topic)
        found = list(islice(self.listed(topic, where), most + 1))
        return found[:most], len(found) > most

    def _require(self, topic: str) -> None:
        if topic not in self.topics():
            raise ConfigurationError(
                f"There is no topic {topic!r} that holds journals.",
                hint="`inorder journal lag` prints them; journal.topic_prefixes says how their names begin.",
            )


def journal_fields(view: JournalView) -> dict[str, Any]:
    """A journal as JSON has it."""
    head = view.head
    return {
        "topic": view.key.topic,
        "id": view.key.id,
        "seq_nr": view.seq_nr,
        "delete_to": view.delete_to,
        "partition": view.partition,
        "store": None
        if head is None
        else {"seq_nr": head.seq_nr, "delete_to": head.delete_to, "offset": head.partition_offset.offset},
        "replicated": view.replicated,
        "is_stored": view.is_stored,
        "parked": view.parked,
        "from": view.first,
        "events": [event_fields(record) | {"text": payload_text(record.event.payload)} for record in view.events],
    }


def listed_fields(journal: ListedJournal) -> dict[str, Any]:
    """A journal in a list."""
    return asdict(journal)


def event_fields(record: EventRecord) -> dict[str, Any]:
    """An event with everything that is known of it; what was printed can be appended again."""
    event = record.event
    return {
        "seq_nr": event.seq_nr,
        **payload_fields(event.payload),
        "tags": sorted(event.tags),
        "timestamp": record.timestamp.isoformat(),
        "partition": record.partition_offset.partition,
        "offset": record.offset,
        "origin": record.origin,
        "version": record.version,
        "metadata": {"header": record.metadata.header, "data": record.metadata.payload.data},
        "headers": dict(record.headers),
    }


def payload_fields(payload: Payload) -> dict[str, Any]:
    """A payload and its type; bytes as `{"base64": "..."}`."""
    kind = payload_type(payload)
    if kind is None:
        return {}
    if isinstance(payload, bytes):
        return {"payload_type": kind.value, "payload": {"base64": base64.b64encode(payload).decode()}}
    return {"payload_type": kind.value, "payload": payload if isinstance(payload, str) else json_value(payload)}


def payload_text(payload: Payload) -> str | None:
    """A payload for people; None for none."""
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return readable(payload)
    return json.dumps(json_value(payload), ensure_ascii=False)
