"""Which keys wait, and why: one bad record holds its key and nothing else.

A record that the broker refuses for its content is *held*, and with it every later record of its key, so that none
overtakes it. It is tried again after a pause. When its attempts are used up, the policy of its topic decides:

    refused ──▶ held ──(attempts left)──▶ tried again ──▶ published: the key goes on
                 │
                 └──(used up)──▶ exceeded ──▶ park: the key waits for a person    (order kept, the default)
                                          ──▶ skip: the key goes on without it
                                 block: everything waits, the record keeps its place

Only ids are kept of what is held: the rows stay in the table and are read again when their turn comes, so that a parked
key with a million rows costs a million numbers and not their values. A record without a key has no order to keep; it is
held alone.

Nothing here is authoritative. A new owner knows from the store which keys are parked, finds the waiting rows by its
first sweep, and counts attempts anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inorder.ports.exceeded_store import Key
from inorder.ports.outbox_store import OutboxRow

Policy = Literal["park", "skip", "block"]

Order = tuple[str, bytes] | tuple[str, int]
"""What must stay in order: a topic and key, or one record without a key by its id."""


def order_of(row: OutboxRow) -> Order:
    """What this row must stay in order with."""
    return (row.topic, row.key) if row.key is not None else (row.topic, row.id)


@dataclass(slots=True)
class Held:
    """Rows that wait, by id, the bad one first; `retry_at` is None while only a person can help."""

    bad: int
    ids: set[int] = field(default_factory=set)
    retry_at: float | None = None


class Parking:
    """What waits at the moment, for one owner."""

    def __init__(self, parked: Mapping[Key, Sequence[int]] | None = None) -> None:
        self._held: dict[Order, Held] = {key: Held(min(ids), set(ids)) for key, ids in (parked or {}).items()}
        self._attempts: dict[int, int] = {}

    def sift(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that may go now; those that come after a held one of their key are noted to wait."""
        if not self._held:
            return list(rows)
        free = []
        for row in rows:
            held = self._held.get(order_of(row))
            if held is None or row.id < held.bad:
                free.append(row)
            else:
                held.ids.add(row.id)
        return free

    def refuse(self, row: OutboxRow) -> int:
        """Counts one more refusal of the row; returns how many attempts it has used up."""
        self._attempts[row.id] = self._attempts.get(row.id, 0) + 1
        return self._attempts[row.id]

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds the row and its key until `retry_at`."""
        held = self._held.setdefault(order_of(row), Held(row.id))
        held.bad = min(held.bad, row.id)
        held.ids.add(row.id)
        held.retry_at = retry_at

    def exceed(self, row: OutboxRow, *, parks: bool, now: float) -> None:
        """The row is gone from the outbox: its key waits for a person, or goes on at once without it."""
        held = self._held[order_of(row)]
        self._attempts.pop(row.id, None)
        if parks:
            held.retry_at = None
        else:
            held.ids.discard(row.id)
            held.retry_at = now

    def due(self, now: float) -> list[list[int]]:
        """Takes what is to be tried now out of hold; each list holds the ids of one key, in order."""
        return self._take(
            order for order, held in self._held.items() if held.retry_at is not None and held.retry_at <= now
        )

    def release(self, parked: Mapping[Key, Sequence[int]]) -> list[list[int]]:
        """Takes keys that the store no longer calls parked out of hold, with the ids that waited."""
        return self._take(order for order in self.parked() if order not in parked)

    def parked(self) -> list[Order]:
        """What waits for a person."""
        return [order for order, held in self._held.items() if held.retry_at is None]

    def published(self, ids: Iterable[int]) -> None:
        """Forgets the attempts of rows that went through after all."""
        if self._attempts:
            for id in ids:
                self._attempts.pop(id, None)

    def _take(self, orders: Iterable[Order]) -> list[list[int]]:
        return [sorted(self._held.pop(order).ids) for order in list(orders)]


def halves(rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    """Both halves of a batch in which some record was refused and nobody knows which."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
