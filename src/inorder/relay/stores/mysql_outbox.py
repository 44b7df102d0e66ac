"""An outbox table in MySQL or MariaDB, as the relay reads, marks and purges it.

What is known about these servers, and how the store uses it. Tests show it on MariaDB 11.4; statements about MySQL 8
and `innodb_trx` are from their documentation.

- **One snapshot.** A single statement at READ COMMITTED has one read view, all parts of a UNION included. So each scan
  is one statement.
- **Who may hold ids** (`holders`). A writer takes a metadata lock on the table when it opens it, so before it takes
  an AUTO_INCREMENT id, and releases it after its rows are visible or gone. `performance_schema.metadata_locks` lists
  those locks. `information_schema.innodb_trx` is not enough: it is up to 100 ms old, and an id may be taken before the
  transaction is in it.
- **Names.** A lock is named by its thread, the number of the statement that took it and its address. A lock keeps its
  name for as long as it is held. Statements are numbered only with the consumer `events_statements_current` (on by
  default in MySQL 8, off in MariaDB); without it the next transaction of a pooled connection may be named as the last
  one was. The relay then waits longer than necessary, and is still correct.
- **Without that list** `holders` returns None, and the relay walks from the head: correct, but slower. MySQL 8 keeps
  the list. MariaDB needs these in its configuration file; set at run time, locks taken before would be missing:

      performance_schema = ON
      performance-schema-instrument = 'wait/lock/metadata/sql/mdl=ON'
      performance-schema-consumer-events-statements-current = ON

  The user of the relay needs SELECT on `performance_schema.*`. The answer is also None after the server had more locks
  than it can list (`performance_schema_max_metadata_locks`).
- **XA.** A prepared transaction whose connection is gone has no lock in the list, on MariaDB at least. While any is
  prepared the answer is None. MySQL 8 shows them only to users with XA_RECOVER_ADMIN; without it, a row whose XA
  transaction lost its connection and was committed later is found by a sweep, and may then come after newer rows of
  its key.
- **Marks.** There is no UPDATE … RETURNING. A locking read in id order would wait for the rows of every open
  transaction, so rows are found without locks, marked by id and read back, in one transaction. At READ COMMITTED that
  locks no gaps, so writers are not blocked.
- **Lists of ids.** With `IN (…)` the optimiser walks over the whole table as soon as the list is a good part of it,
  which in an outbox it always is; and a DELETE that walks waits for the rows of every open transaction (seen with 100
  rows). So lists are joined by the index of the id, whose name is looked up once.
- **Speed.** PyMySQL is written in Python: about 200,000 rows/s of 100 bytes in pages of 10,000, on two busy cores. Its
  unbuffered cursor and a shorter table of converters were no faster there. Where holders are unknown every scan walks
  from the head; it reads the ids of rows in hand, and not their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

from inorder.database import sql
from inorder.database.database import CursorTransaction, Result, Transaction
from inorder.database.mysql import Connection, MySQLDatabase, MySQLReconnecting, begun
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.model.partitioning import Shard
from inorder.outbox import layouts
from inorder.relay.stores.outbox_store import (
    NONE_HELD,
    WHOLE,
    WRITTEN_ANEW,
    ById,
    Complete,
    PollingSleeper,
    bound_ids,
    complete,
    divide,
    fragments,
    marked_page,
    most_a_row,
    others_to,
    refuse_unmarkable,
    shard_page,
    whole_page,
)
from inorder.relay.stores.ports import LAST_ID, Origin, Page, Scan

_STATEMENTS = sql.load("inorder.relay", "sql/mysql/outbox.sql")
_MARKS = sql.load("inorder.relay", "sql/mysql/marks.sql")

_IDS_A_STATEMENT = 10_000
"""200 kB at most: far below `max_allowed_packet`."""


class MySQLOutboxStore(PollingSleeper):
    """An `OutboxStore` and a `MarkStore`: one connection reads, one purges, one marks."""

    def __init__(
        self, url: str, table: str, *, layout: str = "native", shard: Shard = WHOLE, is_primary: bool = True
    ) -> None:
        self._table = table
        self._layout = layouts.layout(layout, "mysql")
        self._shard = shard
        self._fragments = fragments(_STATEMENTS, self._layout, table, shard)
        self._index = ""
        self._next_id_seen = 0
        """By the session that purges, which began with it."""
        self._purging = MySQLReconnecting(
            url, "inorder relay (purge)", is_primary=is_primary, on_open=self._prepare_purging
        )
        self._reading = MySQLReconnecting(
            url, "inorder relay (read)", is_primary=is_primary, follows=self._purging if is_primary else None
        )
        self._marking = MySQLDatabase(url, "inorder relay (mark)")

    def read(self, scan: Scan, limit: int) -> Page:
        bound: dict[str, Any] = {"above": scan.above, "limit": limit, "probes": bound_ids(scan.probes)}
        bound |= {"others_to": others_to(scan), "most": most_a_row(scan, limit)}
        with self._on(self._reading) as transaction:
            found = self._execute(transaction, self._scan_name(scan), **bound).rows
            if self._shard.is_whole:
                return whole_page(self._complete(transaction, found, scan.max_bytes, scan.held), scan, limit)
            ours, others, top = divide(found)
            return shard_page(self._complete(transaction, ours, scan.max_bytes, scan.held), others, top, scan, limit)

    def holders(self) -> frozenset[str] | None:
        """Metadata locks of writers to the table; None if the server keeps no list, or does not show it to us."""
        try:
            with self._on(self._reading) as transaction:
                names = {row[0] for row in transaction.execute(_STATEMENTS["holders"], self._table_name()).rows}
        except ConfigurationError:
            return None
        is_known = None in names and not self._any_is_prepared()
        return frozenset(names - {None}) if is_known else None

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        """Up to 10,000 rows in one statement; all in one transaction, which the store gives up if ids went back.

        The statements hold the table against TRUNCATE until the end of the transaction, and only then the ids are
        looked at.
        """
        if not ids:
            return 0
        with self._purging.use(session) as connection, begun(connection) as cursor:
            transaction = CursorTransaction(cursor)
            purged = sum(self._execute(transaction, "purge", ids=some).count for some in _cut(ids))
            seen, self._next_id_seen = self._next_id_seen, self._next_id(transaction)
            if self._next_id_seen < seen:
                raise UnreachableError(WRITTEN_ANEW.format(table=self._table))
            return purged

    def session(self) -> int | None:
        return self._purging.session()

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        if not ids:
            return Page([])
        with self._on(self._purging) as transaction:
            found = self._by_id(transaction, ids, max_bytes // len(ids))
            return marked_page(self._complete(transaction, found, max_bytes))

    def origin(self) -> Origin:
        """MySQL has a `server_uuid`; MariaDB is known by its address and number. AUTO_INCREMENT is the next id."""
        return self._origin(self._purging)

    def begin_reads(self) -> Origin:
        """The connection that marks needs no pin: nothing but marks uses it, so they meet each of its errors."""
        self._reading.pin()
        return self._origin(self._reading)

    def _origin(self, connecting: MySQLReconnecting) -> Origin:
        with self._on(connecting) as transaction:
            server = "/".join(row[1] for row in sorted(transaction.execute(_STATEMENTS["server"]).rows))
            next_id = self._next_id(transaction)
        return Origin(server, next_id - 1 if next_id else None)

    def _next_id(self, transaction: Transaction) -> int:
        """0 where the table has no AUTO_INCREMENT that we may read."""
        found = transaction.execute(_STATEMENTS["next_id"], self._table_name()).rows
        return found[0][0] or 0 if found else 0

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        """Finds rows, claims them and reads them back, in one transaction."""
        with self._marks() as transaction:
            bound = {"leader_id": str(leader_id), "limit": limit, "above": above}
            found = self._execute(transaction, "find_unmarked", **bound).rows
            return self._claim(transaction, leader_id, [row[0] for row in found], limit, max_bytes)

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        """Claims rows by id and reads them back, in one transaction."""
        with self._marks() as transaction:
            return self._claim(transaction, leader_id, sorted(ids), max_bytes=max_bytes)

    def reset(self, leader_id: UUID) -> int:
        """Finds marked rows, which reads the whole table, and removes the mark, in one transaction."""
        with self._marks() as transaction:
            found = self._execute(transaction, "find_marked", leader_id=str(leader_id)).rows
            cuts = _cut([row[0] for row in found])
            return sum(self._execute(transaction, "unmark", leader_id=str(leader_id), ids=some).count for some in cuts)

    def close(self) -> None:
        self._reading.close()
        self._purging.close()
        self._marking.close()

    def _prepare_purging(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            self._next_id_seen = self._next_id(CursorTransaction(cursor))

    def _scan_name(self, scan: Scan) -> str:
        probes = "_with_probes" if scan.probes else ""
        if self._shard.is_whole:
            return f"read{probes}"
        return "walk_shard" if scan.walk else f"read_shard{probes}"

    def _any_is_prepared(self) -> bool:
        try:
            with self._on(self._reading) as transaction:
                return bool(transaction.execute(_STATEMENTS["prepared"]).rows)
        except ConfigurationError:
            return False  # we lack the privilege; the essay above says what follows

    def _marks(self) -> AbstractContextManager[Transaction]:
        refuse_unmarkable(self._layout)
        return self._marking.transaction()

    def _claim(
        self,
        transaction: Transaction,
        leader_id: UUID,
        ids: Sequence[int],
        limit: int = LAST_ID,
        max_bytes: int = LAST_ID,
    ) -> Page:
        found: list[Sequence[Any]] = []
        for some in _cut(ids):
            bound = {"leader_id": str(leader_id), "ids": some, "most": max_bytes // max(1, len(ids))}
            self._execute(transaction, "mark", **bound)
            found += self._execute(transaction, "read_marked", **bound).rows
        return marked_page(self._complete(transaction, found, max_bytes), limit)

    def _complete(
        self,
        transaction: Transaction,
        found: Sequence[Sequence[Any]],
        max_bytes: int,
        held: frozenset[int] = NONE_HELD,
    ) -> Complete:
        by_id = ById(
            self._layout.decode,
            found=lambda ids, most: self._by_id(transaction, ids, most),
            sizes=lambda ids: self._sizes(transaction, ids),
        )
        return complete(found, max_bytes, by_id, held)

    def _by_id(self, transaction: Transaction, ids: Sequence[int], most: int) -> Sequence[Sequence[Any]]:
        found: list[Sequence[Any]] = []
        for some in _cut(ids):
            bound = {"probes": some, "above": LAST_ID, "limit": 1, "most": most}
            found += self._execute(transaction, "read_with_probes", **bound).rows
        return found

    def _sizes(self, transaction: Transaction, ids: Sequence[int]) -> dict[int, int]:
        """The server reads values that are stored out of line to know their length, but does not send them."""
        parts = [self._execute(transaction, "sizes", probes=some).rows for some in _cut(ids)]
        return {id: int(size) for part in parts for id, size in part}

    @contextmanager
    def _on(self, connecting: MySQLReconnecting, session: int | None = None) -> Iterator[Transaction]:
        with connecting.use(session) as connection, connection.cursor() as cursor:
            yield CursorTransaction(cursor)

    def _execute(self, transaction: Transaction, name: str, **bound: Any) -> Result:
        return transaction.execute(self._statement(transaction, name), bound)

    def _statement(self, transaction: Transaction, name: str) -> str:
        if not self._index:
            self._index = self._find_index(transaction)
        statements = _MARKS if name in _MARKS else _STATEMENTS
        return statements.render(name, index=self._index, **self._fragments)

    def _find_index(self, transaction: Transaction) -> str:
        found = transaction.execute(_STATEMENTS["index"], {**self._table_name(), "id": self._layout.id}).rows
        if not found:
            raise ConfigurationError(
                f"There is no table {self._table!r} with an index on {self._layout.id!r}.",
                hint="`inorder schema install` creates it; `inorder doctor` reports what is missing.",
            )
        return f"`{found[0][0]}`"

    def _table_name(self) -> dict[str, str | None]:
        schema, _, name = self._table.rpartition(".")
        return {"schema": schema or None, "name": name}


def _cut(ids: Sequence[int]) -> Iterator[str]:
    for start in range(0, len(ids), _IDS_A_STATEMENT):
        yield bound_ids(ids[start : start + _IDS_A_STATEMENT])
