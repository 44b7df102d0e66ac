"""What every outbox store puts into its statements: the fragments of its layout and the rule of its shard."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import orjson

from inorder.database.sql import Statements, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import Layout
from inorder.relay.stores.ports import LAST_ID, OTHERS_WINDOW, OutboxStore, Page, Scan

WHOLE = Shard()


def fragments(statements: Statements, layout: Layout, table: str, shard: Shard) -> dict[str, str]:
    """By the names that the statements give them; `mine` is made from the statement of that name."""
    mine = "TRUE"
    if not shard.is_whole:
        mine = statements.render(
            "mine", topic=layout.topic, key=layout.key, id=layout.id, shards=str(shard.count), shard=str(shard.index)
        )
    return {
        "table": quoted_table(layout.dialect, table),
        "id": layout.id,
        "columns": layout.columns,
        "mine": mine,
        "leader_id": layout.leader_id or "",
    }


def refuse_unmarkable(layout: Layout) -> None:
    """Raises for a layout whose rows have no place for a mark."""
    if layout.leader_id is None:
        raise ConfigurationError(
            f"Rows of the layout {layout.name!r} cannot be marked.", hint='Set relay.strategy = "drain".'
        )


def bound_ids(ids: Sequence[int]) -> str:
    """A list of ids as one value, where the driver cannot bind lists: a JSON text."""
    return orjson.dumps(list(ids)).decode()


# From what a store's statement found to the page that the relay asked for, the same in every dialect.

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


# An outbox whose rows are read in a replica, while everything that decides is asked of the primary.


class ReplicaReads:
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


# Waiting on a database through which publishers cannot wake us: the relay looks for itself, ever less often.


class PollingSleeper:
    """The three verbs of a `Sleeper` that nobody can wake."""

    def begin_sleep(self) -> bool:
        """Nobody can be asked."""
        return False

    def wait(self, seconds: float) -> bool:
        """Waits all of it."""
        time.sleep(seconds)
        return False

    def end_sleep(self) -> None:
        """Nobody was asked."""
