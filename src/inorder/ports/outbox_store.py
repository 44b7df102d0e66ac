"""The outbox table as the relay sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

LAST_ID: Final = 2**63 - 1

OTHERS_WINDOW: Final = 40_000
"""How many ids a walk looks at for rows of other shards."""


class OutboxRow(NamedTuple):
    """One row, ready to be sent; a named tuple because a relay makes a hundred thousand of them a second."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
    flaw: str = ""
    """Why this row cannot be sent, whatever the broker says: somebody else wrote it wrongly."""
    partition_key: bytes | None = None
    """What decides the partition instead of the key, where the layout keeps such a thing."""

    @property
    def routed_by(self) -> bytes | None:
        """What the partition is chosen by, where none is given."""
        return self.key if self.partition_key is None else self.partition_key


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read in one snapshot: some single ids, and everything above one id in id order."""

    above: int
    probes: tuple[int, ...] = ()
    walk: bool = False
    """Whether to walk over rows that were met before: those of other shards must not crowd out ours then."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one scan found. Rows of other shards are told by their ids, so that those are not taken for missing."""

    rows: list[OutboxRow]
    """Ours, in id order; a malformed one has a `flaw`."""
    is_full: bool = False
    """Whether the limit was reached, so that more may wait."""
    top: int = 0
    """Every visible row of ours above `Scan.above` and up to this id is among `rows`."""
    others: Sequence[int] = ()
    others_to: int = LAST_ID
    """Up to which id `others` names all of them."""


class Sleeper(Protocol):
    """Waiting for publishers, and the end of it all."""

    def begin_sleep(self) -> bool:
        """Asks publishers to wake us from now on; False if that is not possible at the moment."""

    def wait(self, seconds: float) -> bool:
        """Returns when a publisher woke us, or after `seconds`; tells whether it was the former."""

    def end_sleep(self) -> None:
        """Publishers need not wake us any more."""

    def close(self) -> None:
        """Gives every connection back; may be called twice."""


class OutboxStore(Sleeper, Protocol):
    """Reads and purges outbox rows.

    The relay calls `read`, `holders` and the three sleep verbs from one thread and `purge` from another, so an adapter
    keeps a connection for each. Failures of the environment are raised as `TransientError`, after which the next call
    may connect anew.
    """

    def read(self, scan: Scan, limit: int) -> Page:
        """Rows of the scan in id order, seen by **one** snapshot.

        Reading on, it meets up to `limit` rows of any shard above `scan.above`, and those of the probes that are
        visible; `top` is the last id it met. A walk finds up to `limit` rows of ours; unless it is full, `top` is the
        largest id of the whole table, and `others` names rows up to `OTHERS_WINDOW` ids above `scan.above`.
        """

    def holders(self) -> frozenset[str] | None:
        """Names of the transactions that may hold ids not visible yet, or None where the database cannot tell.

        A transaction must be named from before it takes its first id until after its rows are visible or gone.
        """

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes rows by id and commits; ids that are gone already are no error. Returns how many there were."""
