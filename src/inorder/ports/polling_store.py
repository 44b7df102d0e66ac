"""Offset, missing and exceeded events of the trendyol layout, as the strategy `polling` sees them.

The rows themselves are read through `OutboxStore`, with its `Scan`, `Page` and `holders`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from inorder.ports.exceeded_store import Key


@dataclass(frozen=True, slots=True)
class MissingEvent:
    """An id that the offset has passed and that is not delivered: not visible yet, refused, or behind a refused one."""

    id: int
    retry_count: int = 0
    exception_thrown: bool = False
    """Whether its record was refused by the broker."""
    missed_at: datetime | None = None
    """When it was recorded; the store fills it in."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one round came to; all of it is written in one transaction, in the order of these fields."""

    from_offset: int
    to_offset: int
    """The offset moves from the one to the other; where they are equal it is only looked at."""
    missed: Sequence[MissingEvent] = ()
    """New rows of missing; an id that is there already stays as it is."""
    failed: Sequence[int] = ()
    """In missing: retry_count + 1, exception_thrown becomes true."""
    waited: Sequence[int] = ()
    """In missing: retry_count + 1."""
    delivered: Sequence[int] = ()
    """Leave missing, and exceeded too should they be there: delivered, or proven never to be committed."""
    exceeded: Sequence[tuple[int, str]] = ()
    """(id, reason): from missing to exceeded. An id that is not in missing, nor in `missed`, is left alone.

    A reason begins with the code of its error where there is one, as in `RECORD-001: too large`: people filter by it.
    """


@dataclass(frozen=True, slots=True)
class PollingState:
    """How far the relay is."""

    offset: int
    newest_id: int
    """The largest id of the table; 0 where it is empty."""
    missing: int
    exceeded: int
    oldest_missing: datetime | None
    behind: int
    """How many rows there are above the offset."""


class PollingStore(Protocol):
    """Everything about offset, missing and exceeded; always on the primary database.

    One thread calls it. Failures of the environment are raised as `TransientError`, after which the next call may
    connect anew.
    """

    def check(self) -> None:
        """Raises `ConfigurationError` unless all tables are there with their columns, and one row of offset."""

    def offset(self) -> int:
        """Every id up to it is delivered, recorded in missing or in exceeded, or was never committed."""

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        """The missing events above an id, by id; a table without a primary key may name one twice, this does not."""

    def parked(self) -> Mapping[Key, tuple[int, ...]]:
        """Topic and key of every exceeded event whose row is visible and has a key, each with those events' ids, by id.

        Whether such a key really waits is the policy of its topic, which the relay knows. Events that the original tool
        gave up have no reason and are left out: their keys have long gone on.
        """

    def settle(self, settlement: Settlement) -> None:
        """Writes it all, in one transaction that holds the row of the offset from its first statement to its end.

        `FencedError` if the offset is neither `from_offset` nor `to_offset`, and nothing is written then. After a lost
        answer to the commit the caller settles the same again: an offset that has moved tells that it was done. Where
        the offset does not move, what is done already changes nothing, but that retry counts may be one too high.
        """

    def state(self) -> PollingState:
        """Figures for people."""

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
