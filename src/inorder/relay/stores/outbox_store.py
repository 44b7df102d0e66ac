"""What the outbox stores of all databases share: fragments of statements, pages, and waiting without notifications."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import orjson

from inorder.database.sql import Statements, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import Layout
from inorder.outbox.layouts.rows import Decode, decode_rows
from inorder.relay.stores.ports import LAST_ID, OTHERS_WINDOW, Origin, OutboxStore, Page, Scan

WHOLE = Shard()


def fragments(statements: Statements, layout: Layout, table: str, shard: Shard) -> dict[str, str]:
    """The parts of a layout that statements name; `mine` is whether a row belongs to the shard."""
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
    """Raises for a layout whose rows have no column for a mark."""
    if layout.leader_id is None:
        raise ConfigurationError(
            f"Rows of the layout {layout.name!r} cannot be marked.", hint='Set relay.strategy = "drain".'
        )


def bound_ids(ids: Sequence[int]) -> str:
    """A list of ids as one JSON text, for drivers that cannot bind lists."""
    return orjson.dumps(list(ids)).decode()


def whole_page(found: Sequence[Sequence[Any]], scan: Scan, limit: int, decode: Decode) -> Page:
    """The page of the only shard: every row found is ours."""
    rows = sorted(decode_rows(decode, found), key=attrgetter("id"))
    above = len(rows) - bisect_right(rows, scan.above, key=attrgetter("id"))
    return Page(rows, is_full=above >= limit, top=rows[-1].id if rows else 0)


def others_to(scan: Scan) -> int:
    """Up to which id a scan among several shards names the rows of others."""
    return min(scan.above + OTHERS_WINDOW, LAST_ID) if scan.walk else LAST_ID


def shard_page(found: Iterable[Sequence[Any]], scan: Scan, limit: int, decode: Decode) -> Page:
    """The page of one shard among several.

    Each row found has a kind (`ours`, `other`, or `top` for the largest id of the table), its id, and then the columns
    of the layout, which have values only if it is ours.
    """
    ours, others, top = [], [], 0
    for kind, id, *columns in found:
        if kind == "ours":
            ours.append(columns)
        elif kind == "other":
            others.append(id)
        else:
            top = id or 0
    rows = sorted(decode_rows(decode, ours), key=attrgetter("id"))
    return page_of(rows, sorted(others), top, scan, limit)


def page_of(rows: list[OutboxRow], others: list[int], top: int, scan: Scan, limit: int) -> Page:
    """The same from our rows and the ids of others, both in order, and the largest id that the statement returned."""
    met = sorted([*([] if scan.walk else others), *(row.id for row in rows)])
    is_full = len(met) - bisect_right(met, scan.above) >= limit
    if is_full or not scan.walk:
        top = met[-1] if met else 0
    return Page(rows, is_full, top, others, others_to(scan))


class ReplicaReads:
    """An `OutboxStore` that reads rows from a replica and everything else from the primary.

    The replica may lag. That delays rows and reorders none, if the replica shows transactions in the order in which
    they were committed: a row that is visible without an earlier one of its key was then written while that was still
    open. What the replica does not show may exist all the same, so it never proves that an id will not appear: the last
    read is of the primary. `holders` are those of the primary, because transactions write only there.
    """

    def __init__(self, primary: OutboxStore, replica: OutboxStore) -> None:
        self._primary = primary
        self._replica = replica

    def read(self, scan: Scan, limit: int) -> Page:
        return self._replica.read(scan, limit)

    def holders(self) -> frozenset[str] | None:
        return self._primary.holders()

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        return self._primary.purge(ids, session)

    def session(self) -> int | None:
        """None: the replica may be read at another server than the one that purges."""
        return None

    def rows_to_purge(self, ids: Sequence[int]) -> list[OutboxRow]:
        return self._primary.rows_to_purge(ids)

    def origin(self) -> Origin:
        return self._primary.origin()

    def begin_sleep(self) -> bool:
        """Publishers notify on the primary."""
        return self._primary.begin_sleep()

    def wait(self, seconds: float) -> bool:
        return self._primary.wait(seconds)

    def end_sleep(self) -> None:
        self._primary.end_sleep()

    def close(self) -> None:
        self._replica.close()
        self._primary.close()


class PollingSleeper:
    """A `Sleeper` for databases without notifications: the relay reads the table itself, less and less often."""

    def begin_sleep(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def end_sleep(self) -> None:
        pass

    def close(self) -> None:
        pass
