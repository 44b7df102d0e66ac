"""The outbox table as the relay sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class OutboxRow(NamedTuple):
    """One row, ready to be sent; a named tuple because a relay makes a hundred thousand of them a second."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read in one snapshot: some single ids, and everything above one id in id order."""

    above: int
    probes: tuple[int, ...] = ()


class OutboxStore(Protocol):
    """Reads and purges outbox rows.

    The relay calls `read`, `holders` and the three sleep verbs from one thread and `purge` from another, so an adapter
    keeps a connection for each. Failures of the environment are raised as `TransientError`, after which the next call
    may connect anew.
    """

    def read(self, scan: Scan, limit: int) -> list[OutboxRow]:
        """Rows of the scan in id order, seen by **one** snapshot; at most `limit` of those above `scan.above`."""

    def holders(self) -> frozenset[str] | None:
        """Names of the transactions that may hold ids not visible yet, or None where the database cannot tell.

        A transaction must be named from before it takes its first id until after its rows are visible or gone.
        """

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes rows by id and commits; ids that are gone already are no error. Returns how many there were."""

    def begin_sleep(self) -> bool:
        """Asks publishers to wake us from now on; False if that is not possible at the moment."""

    def wait(self, seconds: float) -> None:
        """Returns when a publisher woke us, or after `seconds`."""

    def end_sleep(self) -> None:
        """Publishers need not wake us any more."""

    def close(self) -> None:
        """Gives every connection back; may be called twice."""
