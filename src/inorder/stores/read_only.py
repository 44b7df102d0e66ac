"""An outbox whose rows are read in a replica, while everything that decides is asked of the primary."""

from __future__ import annotations

from collections.abc import Sequence

from inorder.ports.outbox_store import OutboxStore, Page, Scan


class ScannedElsewhere:
    """An `OutboxStore` that scans another database than the one it belongs to.

    The replica may lag. That delays rows and reorders none, if the replica shows transactions in the order in which
    they were committed: a row that is seen without an earlier one of its key was then written while that was still
    open. What it does not show may be there all the same, so nobody may conclude from it that an id will never come:
    the last look is at the primary. `holders` are of the primary in any case, since nobody writes to a replica.
    """

    def __init__(self, primary: OutboxStore, replica: OutboxStore) -> None:
        self._primary = primary
        self._replica = replica

    def read(self, scan: Scan, limit: int) -> Page:
        """In the replica."""
        return self._replica.read(scan, limit)

    def holders(self) -> frozenset[str] | None:
        """In the primary."""
        return self._primary.holders()

    def purge(self, ids: Sequence[int]) -> int:
        """In the primary."""
        return self._primary.purge(ids)

    def begin_sleep(self) -> bool:
        """Writers wake whoever sleeps at the primary."""
        return self._primary.begin_sleep()

    def wait(self, seconds: float) -> bool:
        """The same."""
        return self._primary.wait(seconds)

    def end_sleep(self) -> None:
        """The same."""
        self._primary.end_sleep()

    def close(self) -> None:
        """Both."""
        self._replica.close()
        self._primary.close()
