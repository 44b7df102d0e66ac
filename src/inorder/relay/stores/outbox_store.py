"""What the outbox stores of all databases share: fragments of statements, pages, and waiting without notifications.

**Bytes.** A read returns no more than `max_bytes`, whatever the rows are. How many rows it may find is known before, so
is how large each may be for all of them to fit (`most_a_row`): the statement returns larger ones without their content,
their ids negated, which sorts them first. A page without such rows is the usual one, and costs nothing more here. For
others the sizes are asked, and as many of the first rows are read by id as fit (`complete`). Their content is then of a
later snapshot than their ids; which rows there are, and in what order they are published, is decided by the first one.

Rows that the caller has in hand are not read again: while it has some, a walk first reads only ids.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import orjson

from inorder.database.sql import Statements, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import Layout
from inorder.outbox.layouts.rows import Decode, decode_rows
from inorder.relay.scan import bytes_of, fitting
from inorder.relay.stores.ports import LAST_ID, OTHERS_WINDOW, Origin, OutboxStore, Page, Scan

WHOLE = Shard()

WRITTEN_ANEW = "Table {table} was truncated or written anew since the session began."
"""Why a store purges nothing and begins another session: the ids may be those of other rows now."""

NONE_HELD: frozenset[int] = frozenset()

PARTS = ("mine", "id_unless_large", "unless_large")
"""What is in the files beside statements: parts of them."""


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
        "columns": columns_unless_large(statements, layout),
        "size": layout.size,
        "mine": mine,
        "leader_id": layout.leader_id or "",
    }


def columns_unless_large(statements: Statements, layout: Layout) -> str:
    """What a store selects: of a row that is too large only the id, negated."""
    id, *others = split_columns(layout.columns)
    small = [statements.render("unless_large", column=column, size=layout.size) for column in others]
    return ", ".join([statements.render("id_unless_large", column=id, size=layout.size), *small])


def split_columns(columns: str) -> list[str]:
    """The expressions of a list, in which those inside parentheses have commas of their own."""
    found, depth = [""], 0
    for sign in columns:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [column.strip() for column in found]


def refuse_unmarkable(layout: Layout) -> None:
    """Raises for a layout whose rows have no column for a mark."""
    if layout.leader_id is None:
        raise ConfigurationError(
            f"Rows of the layout {layout.name!r} cannot be marked.", hint='Set relay.strategy = "drain".'
        )


def bound_ids(ids: Sequence[int]) -> str:
    """A list of ids as one JSON text, for drivers that cannot bind lists."""
    return orjson.dumps(list(ids)).decode()


def most_a_row(scan: Scan, limit: int) -> int:
    """How many bytes a row may have to be read at once; none, if the caller has rows in hand that the scan may meet."""
    return -1 if scan.held else scan.max_bytes // (limit + len(scan.probes))


@dataclass(frozen=True, slots=True)
class ById:
    """Reads single rows on the connection of a scan."""

    decode: Decode
    found: Callable[[Sequence[int], int], Sequence[Sequence[Any]]]
    """Those that exist of some ids; of such as have more bytes than given only the id, negated."""
    sizes: Callable[[Sequence[int]], Mapping[int, int]]

    def rows(self, ids: Sequence[int], most: int) -> list[OutboxRow]:
        return self.decoded(self.found(ids, most))

    def decoded(self, found: Sequence[Sequence[Any]]) -> list[OutboxRow]:
        """Rows in id order, those that are too large first."""
        return sorted(decode_rows(self.decode, found), key=attrgetter("id"))


@dataclass(frozen=True, slots=True)
class Complete:
    """Rows with their content, in id order."""

    rows: list[OutboxRow]
    rest: Sequence[int] = ()
    """Those behind them that have too many bytes."""
    gone: int = 0
    """How many were deleted since the scan."""


def complete(found: Sequence[Sequence[Any]], max_bytes: int, by_id: ById, held: frozenset[int] = NONE_HELD) -> Complete:
    """Reads what a scan left out: as many of its first rows as have `max_bytes` together, and at least one."""
    rows = by_id.decoded(found)
    if not rows or rows[0].id > 0:
        return Complete(rows)
    met = sorted(abs(row.id) for row in rows)
    if held:
        fresh = [id for id in met if id not in held]
        rows = by_id.rows(fresh, max_bytes // len(fresh)) if fresh else []
    small = {row.id: row for row in rows if row.id > 0}
    large = by_id.sizes([-row.id for row in rows if row.id < 0])
    sizes = {id: bytes_of(row) for id, row in small.items()} | dict(large)
    fresh = [id for id in met if id in sizes and id not in held]
    count = fitting((sizes[id] for id in fresh), max_bytes)
    rest = fresh[count:]
    read = by_id.rows([id for id in fresh[:count] if id in large], LAST_ID)
    known = small | {row.id: row for row in read} | {id: _bare(id) for id in held.intersection(met)}
    taken = met[: bisect_left(met, rest[0])] if rest else met
    whole = [known[id] for id in taken if id in known]
    return Complete(whole, rest, gone=len(taken) - len(whole))


def _bare(id: int) -> OutboxRow:
    return OutboxRow(id, "", None, None, (), None, None)


def whole_page(found: Complete, scan: Scan, limit: int) -> Page:
    """The page of the only shard: every row found is ours."""
    rows = found.rows
    if found.rest:
        return Page(rows, is_full=True, top=found.rest[0] - 1, rest=found.rest)
    above = len(rows) - bisect_right(rows, scan.above, key=attrgetter("id")) + found.gone
    return Page(rows, is_full=above >= limit, top=rows[-1].id if rows else 0)


def marked_page(found: Complete, limit: int = LAST_ID) -> Page:
    """The page of a mark that found up to `limit` rows."""
    count = len(found.rows) + len(found.rest) + found.gone
    last = found.rest[-1] if found.rest else found.rows[-1].id if found.rows else 0
    return Page(found.rows, is_full=count >= limit or bool(found.rest), top=last, rest=found.rest)


def others_to(scan: Scan) -> int:
    """Up to which id a scan among several shards names the rows of others."""
    return min(scan.above + OTHERS_WINDOW, LAST_ID) if scan.walk else LAST_ID


def divide(found: Iterable[Sequence[Any]]) -> tuple[list[Sequence[Any]], list[int], int]:
    """What a statement found among several shards: our rows, the ids of others in order, the largest id of the table.

    Each row found has a kind (`ours`, `other`, or `top` for the largest id of the table), its id, and then the columns
    of the layout, which have values only if it is ours.
    """
    ours, others, top = list[Sequence[Any]](), list[int](), 0
    for kind, id, *columns in found:
        if kind == "ours":
            ours.append(columns)
        elif kind == "other":
            others.append(id)
        else:
            top = id or 0
    return ours, sorted(others), top


def shard_page(found: Complete, others: list[int], top: int, scan: Scan, limit: int) -> Page:
    """The page of one shard among several, from the parts of `divide`."""
    rows = found.rows
    if found.rest:
        return Page(rows, True, found.rest[0] - 1, others, others_to(scan), found.rest)
    met = sorted([*([] if scan.walk else others), *(row.id for row in rows)])
    is_full = len(met) - bisect_right(met, scan.above) + found.gone >= limit
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

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        return self._primary.rows_to_purge(ids, max_bytes)

    def origin(self) -> Origin:
        return self._primary.origin()

    def begin_reads(self) -> Origin:
        return self._replica.begin_reads()

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
