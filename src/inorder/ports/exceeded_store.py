"""Where records go that used up their attempts, and which keys wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Key = tuple[str, bytes]
"""A topic and a key: what is kept in order."""


@dataclass(frozen=True, slots=True)
class Exceeding:
    """The decision that one outbox row has used up its attempts; the marker carries it before it is carried out."""

    row_id: int
    attempts: int
    code: str
    reason: str
    parks: bool
    """Whether the row's key waits until somebody retries or discards the row."""


class ExceededStore(Protocol):
    """Rows set aside, in the database of the outbox. The relay calls it from the thread of its loop."""

    def exceed(self, exceeding: Exceeding) -> None:
        """Moves the row out of the outbox and parks its key, in one transaction; doing it again changes nothing."""

    def parked(self) -> Mapping[Key, tuple[int, ...]]:
        """The parked keys, each with the ids of its exceeded rows."""

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
