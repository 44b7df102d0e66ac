"""The rows of an outbox as somebody sees them who only looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from inorder.ports.outbox_store import OutboxRow


class IdRange(NamedTuple):
    """Ids from the first to the last, both included."""

    first: int
    last: int


class WaitingRows(Protocol):
    """Travels pickled to tasks; connects for each call. Raises what stores raise."""

    def extent(self) -> IdRange | None:
        """The lowest and the highest id, or None where no row waits."""

    def rows(self, ids: IdRange) -> Sequence[OutboxRow]:
        """The rows of a range in id order, seen by one snapshot; a malformed one has a `flaw`."""
