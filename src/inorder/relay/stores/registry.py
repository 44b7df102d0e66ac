"""The registered set-up of the relay of each outbox table, in the database that every instance reads.

Two instances that divide one table into different numbers of shards would not fence each other, and would publish rows
twice or out of order. So the first instance registers its set-up, and every later one compares; the caller decides what
follows if they differ. A change has two steps, because rows of the old set-up must be finished first:

    steady ──begin_change(wanted)──▶ changing ──finish_change()──▶ steady
                                      │    ▲
                                      └────┘ begin_change of the same again: resumed after a crash
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import uuid4

from inorder.database.database import Database, Dialect, InstallingDatabase, Transaction, statements_of
from inorder.model.errors import ConfigurationError
from inorder.relay.stores.ports import Registration, Setup


class SqlRegistry:
    """A `Registry` in the database of the outbox; creates its table at the first call."""

    def __init__(self, database: Database, outbox: str) -> None:
        self._database = InstallingDatabase(database, registry_tables(database.dialect))
        self._outbox = outbox
        self._statements = statements_of("inorder.relay", database.dialect, "registry.sql")

    def register(self, wanted: Setup) -> Registration:
        with self._database.transaction() as transaction:
            self._run(transaction, "register", **asdict(wanted))
            return self._require(transaction)

    def read(self) -> Registration | None:
        with self._database.transaction() as transaction:
            return self._read(transaction)

    def read_all(self) -> list[Registration]:
        """The registrations of all outbox tables of the database."""
        with self._database.transaction() as transaction:
            return [_registration(row) for row in transaction.execute(self._statements["read_all"]).rows]

    def begin_change(self, wanted: Setup) -> Registration:
        with self._database.transaction() as transaction:
            self._run(transaction, "begin_change", **asdict(wanted))
            found = self._require(transaction)
            if found.target != wanted:
                raise ConfigurationError(
                    f"The relay of {self._outbox!r} is being changed to {found.target}; requested was {wanted}.",
                    hint="Finish that change first: run `inorder relay reshard` with the same target again.",
                )
            return found

    def finish_change(self) -> Registration:
        with self._database.transaction() as transaction:
            self._run(transaction, "finish_change")
            return self._require(transaction)

    def identity(self) -> str:
        """The random name of the outbox table, assigned at the first call."""
        with self._database.transaction() as transaction:
            self._run(transaction, "identify", identity=uuid4().hex)
            [(found,)] = self._run(transaction, "identity")
            return str(found)

    def close(self) -> None:
        self._database.close()

    def _require(self, transaction: Transaction) -> Registration:
        found = self._read(transaction)
        if found is None:
            raise ConfigurationError(
                f"No relay is registered for the table {self._outbox!r}.",
                hint="Check relay.table; `inorder relay run` registers it.",
            )
        return found

    def _read(self, transaction: Transaction) -> Registration | None:
        return read_registration(transaction, self._statements["read"], self._outbox)

    def _run(self, transaction: Transaction, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return transaction.execute(self._statements[name], {"outbox": self._outbox, **values}).rows


def registry_tables(dialect: Dialect) -> list[str]:
    """The DDL of the registry's table."""
    return statements_of("inorder.relay", dialect, "registry.sql").starting_with("install")


def read_registration(transaction: Transaction, statement: str, outbox: str) -> Registration | None:
    """What is registered, if anything is; `statement` is `read` of a dialect, and the table must exist."""
    rows = transaction.execute(statement, {"outbox": outbox}).rows
    return _registration(rows[0]) if rows else None


def _registration(row: tuple[Any, ...]) -> Registration:
    outbox, group, strategy, shards, epoch, state, *target = row
    return Registration(outbox, group, strategy, shards, epoch, Setup(*target) if state == "changing" else None)
