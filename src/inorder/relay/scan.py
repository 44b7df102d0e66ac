"""What the relay reads next, so that late commits are neither lost nor overtaken.

Ids are given out when a row is inserted and rows appear when their transaction commits, so ids appear out of order. A
relay that only reads on from the last id would lose the late ones; one that returned for them later would publish them
after newer rows of the same key. A relay that always reads from the head of the table is right, but walks over every
row deleted since the oldest open transaction began, on each read.

So the relay remembers which ids it has not seen below the last one (`missing`) and asks for exactly those **in the same
snapshot** in which it reads on. If a transaction saw the effects of an earlier one, every snapshot that shows the later
one's rows shows the earlier one's too, and within a snapshot rows are published in id order.

An id that stays missing was rolled back or belongs to an open transaction. Which of the two is known from the
transactions that may hold ids (`holders`): once all that were open when the id was first missed have ended, one more
scan is final. All ids up to there are then below the `floor` and never asked for again.

| what                                        | then                                                               |
|---|---|
| more ids missing than may be asked for      | scans walk from the floor until the holders have ended             |
| the database cannot name holders            | the floor stays at 0 and every scan walks from the head            |
| ids begin again (truncated, restored)       | a sweep from the head, at take-over and once a minute, sees them   |
| a row was read but is not purged yet        | walks and sweeps return it again; the caller drops what it holds   |

Invariant: every row that is or may become visible is above `last`, or in `missing`, or (while `missing` is None) above
`floor`; or the caller has it in hand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from inorder.ports.outbox_store import Scan

MISSING_LIMIT = 20_000
"""Single ids asked for in one scan; an index look-up each, so this many cost tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Holders that may own ids missing up to `last`."""

    last: int
    holders: frozenset[str]


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far one owner has read. `missing` is None when too many ids are missing to name them."""

    floor: int = 0
    last: int = 0
    missing: tuple[int, ...] | None = None
    watch: Watch | None = None
    settled: int = 0


def next_scan(horizon: Horizon, *, sweep: bool = False) -> Scan:
    """The scan to run now; a sweep reads from the head whatever is known."""
    if sweep:
        return Scan(above=0)
    if horizon.missing is None:
        return Scan(above=horizon.floor)
    return Scan(above=horizon.last, probes=horizon.missing)


def after_scan(
    horizon: Horizon,
    scan: Scan,
    seen: Sequence[int],
    *,
    in_hand: Set[int] = frozenset(),
    limit: int,
    missing_limit: int = MISSING_LIMIT,
) -> Horizon:
    """The horizon after `scan` returned the ids `seen`, in order, of which the caller had `in_hand` before it began."""
    if any(id <= horizon.floor and id not in in_hand for id in takewhile(horizon.floor.__ge__, seen)):
        return Horizon()  # ids began again below the floor: nothing that was known holds
    last = max(horizon.last, seen[-1] if seen else 0)
    floor = max(horizon.floor, min(horizon.settled, _read_up_to(scan, seen, limit)))
    missing = _missing(horizon, floor, last, seen, missing_limit)
    if missing == ():
        return replace(horizon, floor=last, last=last, missing=missing, watch=None, settled=0)
    return replace(horizon, floor=floor, last=last, missing=missing, settled=0)


def observe(horizon: Horizon, holders: frozenset[str] | None) -> Horizon:
    """The horizon once the holders of ids, asked for **after** the last scan, are known."""
    if holders is None:
        return horizon
    if horizon.watch is None and holders:
        return replace(horizon, watch=Watch(horizon.last, holders))
    if horizon.watch is None:
        return replace(horizon, settled=horizon.last)
    if horizon.watch.holders & holders:
        return horizon
    return replace(horizon, settled=horizon.watch.last, watch=None)


def is_watching(horizon: Horizon) -> bool:
    """Whether the holders matter: only while something is missing."""
    return horizon.missing != ()


def _read_up_to(scan: Scan, seen: Sequence[int], limit: int) -> int:
    """The id up to which nothing visible was left unread."""
    above = len(seen) - bisect_right(seen, scan.above)
    return seen[-1] if above >= limit else _END


def _missing(
    horizon: Horizon, floor: int, last: int, seen: Sequence[int], missing_limit: int
) -> tuple[int, ...] | None:
    known = [id for id in horizon.missing or () if id > floor]
    base = floor if horizon.missing is None else max(floor, horizon.last)
    if len(known) + (last - base) - len(seen) > missing_limit:
        return None
    present = set(seen)
    return tuple(id for id in chain(known, range(base + 1, last + 1)) if id not in present)


_END = 2**63 - 1
