"""From what a store's statement found to the page that the relay asked for, the same in every dialect."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from inorder.ports.outbox_store import LAST_ID, OTHERS_WINDOW, OutboxRow, Page, Scan

Decode = Callable[[Sequence[Any]], OutboxRow]


def whole_page(found: Iterable[Sequence[Any]], scan: Scan, limit: int, decode: Decode) -> Page:
    """The page of the only shard: every row that was found is ours."""
    rows = sorted(map(decode, found), key=attrgetter("id"))
    above = len(rows) - bisect_right(rows, scan.above, key=attrgetter("id"))
    return Page(rows, is_full=above >= limit, top=rows[-1].id if rows else 0)


def others_to(scan: Scan) -> int:
    """Up to which id a scan among several shards names the rows of others."""
    return min(scan.above + OTHERS_WINDOW, LAST_ID) if scan.walk else LAST_ID


def shard_page(found: Iterable[Sequence[Any]], scan: Scan, limit: int, decode: Decode) -> Page:
    """The page of one shard among several.

    Each row found says what it is (`ours`, `other`, or `top` for the largest id of the table), its id, and then the
    columns of the layout, which mean something only where it is ours.
    """
    rows, others, top = [], [], 0
    for kind, id, *columns in found:
        if kind == "ours":
            rows.append(decode(columns))
        elif kind == "other":
            others.append(id)
        else:
            top = id or 0
    rows.sort(key=attrgetter("id"))
    return page_of(rows, sorted(others), top, scan, limit)


def page_of(rows: list[OutboxRow], others: list[int], top: int, scan: Scan, limit: int) -> Page:
    """The same from our rows and the ids of others, both in order, and the largest id that the statement told."""
    met = sorted([*([] if scan.walk else others), *(row.id for row in rows)])
    is_full = len(met) - bisect_right(met, scan.above) >= limit
    if is_full or not scan.walk:
        top = met[-1] if met else 0
    return Page(rows, is_full, top, others, others_to(scan))
