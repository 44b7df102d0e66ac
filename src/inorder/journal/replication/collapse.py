"""Fewer writes for the same result: what several records of one journal amount to, before a store is touched.

Records are walked from the newest to the oldest, so that what is to come is known:

- a mark is nothing; before a purge nothing matters;
- of two deletes in a row the one that reaches further stays, with its own offset;
- a delete before appends goes if a later delete reaches as far;
- appends in a row become one, with the newest offset; an append goes if a later delete covers all of it;
- but the last append before a delete always stays: it says where the journal ends, and how long it lives;
- and so does an append that reaches as far as those between it and the delete: they are forks, and must not count
  instead. (Not as far as those behind the delete too: the delete goes no further than where the journal ends then.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar, assert_never

from inorder.journal.action import Action, Append, Delete, Mark, Purge

R = TypeVar("R")
"""Whatever the caller needs to write a record."""


class Acted(NamedTuple, Generic[R]):
    """An action, where it stands, and what it came with."""

    offset: int
    action: Action
    record: R


@dataclass(frozen=True, slots=True)
class Appends(Generic[R]):
    """Appends to be written together; `offset` is that of the newest."""

    offset: int
    records: tuple[Acted[R], ...]


@dataclass(frozen=True, slots=True)
class Deletion(Generic[R]):
    """A delete to be written."""

    offset: int
    action: Delete
    record: R


@dataclass(frozen=True, slots=True)
class Purging(Generic[R]):
    """A purge to be written."""

    offset: int
    record: R


Batch: TypeAlias = Appends[R] | Deletion[R] | Purging[R]

_Kept: TypeAlias = list[Acted[R]] | Deletion[R] | Purging[R]
"""A batch in the making; appends as a list, the newest first."""


def collapse(records: Sequence[Acted[R]]) -> list[Batch[R]]:
    """The batches that the records of one journal, in offset order, amount to; in offset order too."""
    newer: list[_Kept[R]] = []
    furthest = end = 0
    for record in reversed(records):
        if newer and isinstance(newer[-1], Purging):
            break
        match record.action:
            case Mark():
                pass
            case Purge():
                newer.append(Purging(record.offset, record.record))
            case Delete():
                _delete(newer, record, record.action, furthest)
                furthest = max(furthest, record.action.to)
            case Append():
                end = _append(newer, record, record.action, furthest, end)
            case _:
                assert_never(record.action)
    return [Appends(kept[0].offset, tuple(kept[::-1])) if isinstance(kept, list) else kept for kept in reversed(newer)]


def _delete(newer: list[_Kept[R]], record: Acted[R], action: Delete, furthest: int) -> None:
    deletion = Deletion(record.offset, action, record.record)
    following = newer[-1] if newer else None
    if isinstance(following, Deletion):
        if action.to >= following.action.to:
            newer[-1] = deletion
    elif action.to > furthest:
        newer.append(deletion)


def _append(newer: list[_Kept[R]], record: Acted[R], action: Append, furthest: int, end: int) -> int:
    """Keeps the append if it matters; returns where the appends that are now to be written together end."""
    following, last = newer[-1] if newer else None, action.range.last
    if not isinstance(following, list):
        newer.append([record])
        return last
    if last > furthest or last >= end:
        following.append(record)
    return max(end, last)
