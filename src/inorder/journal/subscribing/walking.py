"""A walk over the journals of a store, in the order of their ids, that can be taken up again at any event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

from inorder.journal.subscribing.checkpoint import Checkpoint, Walk
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key
from inorder.ports.journal_store import EventualJournal, JournalHead

IDS_AT_ONCE: Final = 100_000
"""Stores give ids in any order, so each look at all of them takes the next so many."""


class Walked(NamedTuple):
    """An event that the walk has come to, None at the end of a journal, and the checkpoint after it."""

    key: Key
    record: EventRecord | None
    position: Checkpoint


def walk(
    store: EventualJournal,
    start: Checkpoint,
    on_damaged: Callable[[DamagedRecordError], None],
    *,
    ids_at_once: int = IDS_AT_ONCE,
) -> Iterator[Walked]:
    """The events above `start.done` and up to `start.walk.to`, journal after journal.

    A journal that the store cannot show is told to `on_damaged`, and passed over if that returns.
    """
    at = start.walk
    if at is None:
        return
    if at.id:
        yield from _journal(store, start, at, on_damaged)
    for id in _ids_above(store, start.topic, at.id, ids_at_once):
        yield from _journal(store, start, Walk(at.to, id), on_damaged)


def _ids_above(store: EventualJournal, topic: str, id: str, at_once: int) -> Iterator[str]:
    while ids := heapq.nsmallest(at_once, (each for each in store.ids(topic) if each > id)):
        yield from ids
        id = ids[-1]


def _journal(
    store: EventualJournal, start: Checkpoint, at: Walk, on_damaged: Callable[[DamagedRecordError], None]
) -> Iterator[Walked]:
    key, head = Key(at.id, start.topic), None
    try:
        head = store.pointer(key)
    except DamagedRecordError as error:
        on_damaged(error)
    if head is not None and _has_more(head, start):
        with closing(store.read(key, head, at.seq_nr + 1)) as records:
            for record in records:
                place = record.partition_offset
                if place.offset <= at.to.get(place.partition, -1) and not start.includes(record):
                    at = replace(at, seq_nr=record.seq_nr)
                    yield Walked(key, record, replace(start, walk=at))
    yield Walked(key, None, replace(start, walk=at))


def _has_more(head: JournalHead, start: Checkpoint) -> bool:
    last = head.partition_offset
    return last.offset > start.done.get(last.partition, -1)
