"""What the relay reads next, so that late commits are neither lost nor overtaken.

Ids are given out when a row is inserted and rows appear when their transaction commits, so ids appear out of order. A
relay that only reads on from the last id would lose the late ones; one that came back for them later would publish them
after newer rows of the same key. A relay that always reads from the head of the table is right, but walks over every
row deleted since the oldest open transaction began, on each read.

So the relay remembers which ids it has not seen below the last one (`missing`) and reads exactly those **in the same
snapshot** in which it reads on. If a transaction saw the effects of an earlier one, every snapshot that shows the later
one's rows shows the earlier one's too, and within a snapshot rows are published in id order.

An id that stays missing was rolled back or belongs to an open transaction. Which of the two follows from the
transactions that may hold ids (`holders`): once all that were open when the id was first missed have ended, one more
scan is final. All ids up to there are then below the `floor` and never read again.

| what                                        | then                                                               |
|---|---|
| more ids missing than one scan may read     | scans walk from the floor until the holders have ended             |
| the database cannot name holders            | the floor stays at 0 and every scan walks from the head            |
| ids begin again (truncated, set back)       | a sweep from the head sees them: at take-over, once a minute, and  |
|                                             | about once a second while there is nothing else to read. A server  |
|                                             | that was replaced ends the term instead (`drain.py`)               |
| a row was read but is not purged yet        | walks and sweeps name it again, without its content; the caller    |
|                                             | drops what it holds                                                |
| rows are too large to be read together      | the page ends before the first that does not fit, as a full one    |
| there are several shards                    | the page names rows of the others by id, so they are not missing   |
| others have more rows than a walk names     | walks continue until the floor is near enough to name them all     |

A sweep considers only ids up to `last` while it is known what is missing; what is above is left to the scan that reads
on, which knows what is missing there.

Invariant: every row that is or may become visible is above `last`, or in `missing`, or (while `missing` is None) above
`floor`; or the caller has it in hand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from inorder.model.message import OutboxRow
from inorder.relay.stores.ports import LAST_ID, Page, Scan

SWEEP_SECONDS = 60.0
"""Between sweeps, which read the table from its head regardless of what is known about ids."""

IDLE_SWEEP_SECONDS = 1.0
SWEEP_SHARE = 0.01
"""While nothing is found above the last id, rows may be waiting below it, because ids were set back. So sweeps follow
one another sooner: after `IDLE_SWEEP_SECONDS`, unless that were more than `SWEEP_SHARE` of the time."""

MISSING_LIMIT = 20_000
"""Single ids read by one scan; an index look-up each, so this many cost tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class HolderWatch:
    """Holders that may own ids missing up to `last`."""

    last: int
    holders: frozenset[str]


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far one owner has read. `missing` is None when too many ids are missing to name them."""

    floor: int = 0
    last: int = 0
    missing: tuple[int, ...] | None = None
    watch: HolderWatch | None = None
    settled: int = 0


def next_scan(horizon: Horizon, *, sweep: bool = False) -> Scan:
    """The scan to run now; a sweep reads from the head."""
    if sweep:
        return Scan(above=0, walk=True)
    if horizon.missing is None:
        return Scan(above=horizon.floor, walk=True)
    return Scan(above=horizon.last, probes=horizon.missing)


def after_scan(
    horizon: Horizon,
    scan: Scan,
    page: Page,
    *,
    in_hand: Set[int] = frozenset(),
    missing_limit: int = MISSING_LIMIT,
) -> Horizon:
    """The horizon after `scan` found `page`, of which the caller had `in_hand` before it began."""
    if any(row.id not in in_hand for row in takewhile(lambda row: row.id <= horizon.floor, page.rows)):
        return Horizon()  # ids began again below the floor: nothing that was known is still true
    last = horizon.last if is_sweep_only(horizon, scan) else max(horizon.last, page.top)
    floor = max(horizon.floor, min(horizon.settled, page.top if page.is_full else LAST_ID))
    missing = _missing(horizon, floor, last, page, missing_limit)
    if missing == ():
        return replace(horizon, floor=last, last=last, missing=missing, watch=None, settled=0)
    return replace(horizon, floor=floor, last=last, missing=missing, settled=0)


def after_mark(horizon: Horizon, above: int, page: Page, *, in_hand: Set[int]) -> Horizon:
    """The horizon after marking rows above an id; only its floor is used.

    Rows marked before are not on the page, so missing ids are unknown: scans are walks from the floor.
    """
    return after_scan(horizon, Scan(above, walk=True), page, in_hand=in_hand, missing_limit=-1)


def is_sweep_only(horizon: Horizon, scan: Scan) -> bool:
    """Whether to ignore rows above `last`, because the scan does not show what is missing among them."""
    return scan.walk and horizon.missing is not None


def observe(horizon: Horizon, holders: frozenset[str] | None) -> Horizon:
    """The horizon given the holders of ids, read **after** the last scan."""
    if holders is None:
        return horizon
    if horizon.watch is None and holders:
        return replace(horizon, watch=HolderWatch(horizon.last, holders))
    if horizon.watch is None:
        return replace(horizon, settled=horizon.last)
    if horizon.watch.holders & holders:
        return horizon
    return replace(horizon, settled=horizon.watch.last, watch=None)


class Sweeps:
    """When the table is to be read from its head again: at once, then at an interval."""

    def __init__(self, clock: Callable[[], float], seconds: float = SWEEP_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._swept_at = float("-inf")
        self._took = 0.0

    def are_due(self, *, is_idle: bool = False) -> bool:
        """Whether a sweep is due; if so, the next one is due an interval later, which is shorter while we are idle."""
        now = self._clock()
        idle = max(IDLE_SWEEP_SECONDS, self._took / SWEEP_SHARE)
        if now - self._swept_at < (min(idle, self._seconds) if is_idle else self._seconds):
            return False
        self._swept_at = now
        return True

    def end(self) -> None:
        """Records that the sweep has ended, so how long it took."""
        self._took = self._clock() - self._swept_at


def is_watching(horizon: Horizon) -> bool:
    """Whether the holders matter: only while something is missing."""
    return horizon.missing != ()


def _missing(horizon: Horizon, floor: int, last: int, page: Page, missing_limit: int) -> tuple[int, ...] | None:
    known = [id for id in horizon.missing or () if id > floor]
    base = floor if horizon.missing is None else max(floor, horizon.last)
    if last > base and last > page.others_to:
        return None
    others = page.others[: bisect_right(page.others, last)]
    if len(known) + (last - base) - len(page.rows) - len(others) > missing_limit:
        return None
    present = {row.id for row in page.rows}
    present.update(others)
    return tuple(id for id in chain(known, range(base + 1, last + 1)) if id not in present)


FIRST_ROWS = 500
BATCH_BYTES = 64 * 1024 * 1024
GROWTH = 4
ROOM = 4
"""How many times as large as the average a row may be and still be read with the others, in one statement."""


def next_limit(limit: int, rows: Sequence[OutboxRow], batch_size: int, batch_bytes: int = BATCH_BYTES) -> int:
    """How many rows to read after a read of `rows`: grows step by step, and leaves room for larger rows."""
    if not rows:
        return limit
    fits = batch_bytes * len(rows) // max(ROOM * sum(map(bytes_of, rows)), 1)
    return max(1, min(batch_size, limit * GROWTH, fits))


def bytes_of(row: OutboxRow) -> int:
    """The size of a row in memory, as far as its content decides it."""
    size = len(row.value or b"") + len(row.key or b"")
    if row.headers:
        size += sum(len(name) + len(value or b"") for name, value in row.headers)
    return size


def fitting(sizes: Iterable[int], most: int) -> int:
    """How many of the first rows fit into so many bytes together; one even if it does not."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count
