"""The outbox table as the strategy `mark-purge` sees it: rows carry the id of the leader that claimed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from inorder.ports.outbox_store import OutboxRow, Sleeper


class MarkStore(Sleeper, Protocol):
    """Claims rows by marking them.

    The relay calls `purge` from one thread and all the others from another. Failures of the environment are raised as
    `TransientError`, after which the next call may connect anew.
    """

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0) -> list[OutboxRow]:
        """Claims the oldest rows above an id that this leader has not marked, atomically; returns them in id order.

        Rows that an earlier leader marked are claimed too. When the answer to the commit is lost it raises
        `TransientError`; the rows may be marked then, and only a new leader id finds them again.
        """

    def mark_again(self, leader_id: UUID, ids: Sequence[int]) -> list[OutboxRow]:
        """Claims exactly these rows, whosever mark they carry, atomically; returns those there are, in id order.

        For rows that waited and may have been changed meanwhile: a row that was set aside comes back without a mark.
        """

    def holders(self) -> frozenset[str] | None:
        """As in `OutboxStore`: transactions that may hold ids not visible yet, or None where nobody can tell."""

    def reset(self, leader_id: UUID) -> int:
        """Takes this leader's mark off every row that still carries it; returns how many there were."""

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes rows that are known to be published, whosever mark they carry, in one statement; returns how many.

        Called from another thread than the rest.
        """
