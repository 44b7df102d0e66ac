"""Whether the server of an outbox gives what the relay assumes: ids in the order of writing, and locks seen by all.

The relay reads in the order of ids. A transaction takes its ids while it holds a lock that the relay can list, so a
gap in the ids is either explained by a holder or will never be filled (`relay/scan.py`). Two kinds of servers break
that, however correct they are as databases:

- **Distributed ones** give each node, or each session, a range of ids of its own, and list no locks of others. A later
  transaction may get a smaller id, which the relay has passed. They are refused.
- **Several primaries.** Each node counts its ids and lists its locks by itself, and a row may become visible here
  long after its id was taken there. They are refused, unless all writers and the relay use one node:
  `database.single_writer_node` says so. A failover to another node is then one of a primary and a replica.

Servers are recognised by the name in their version, their settings and their extensions. One that is not recognised is
assumed to be what it says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

from inorder.database.database import CursorTransaction, Dialect, Transaction, dialect_of, statements_of
from inorder.model.errors import ConfigurationError

log = logging.getLogger("inorder.relay")

Facts = Mapping[str, str]
"""Settings, the version and extensions of a server, by name."""


@dataclass(frozen=True, slots=True)
class Unsuited:
    """A server on which order or completeness do not hold; `kind` says whether that depends on how it is used."""

    name: str
    kind: Literal["distributed", "several primaries", "doubtful"]
    why: str

    def is_refused(self, *, single_writer_node: bool) -> bool:
        return self.kind == "distributed" or (self.kind == "several primaries" and not single_writer_node)

    @property
    def hint(self) -> str:
        match self.kind:
            case "distributed":
                return "Keep the outbox in PostgreSQL, MySQL or MariaDB with one primary."
            case "several primaries":
                return (
                    "Let all writers of the outbox and the relay use one node, then set "
                    "database.single_writer_node = true."
                )
            case "doubtful":
                return "Check that all writers of the outbox use one server."


_NODE_IDS: Final = "each node gives out its own range of ids, so a later row may have a smaller id"
_NODE_LOCKS: Final = "ids and metadata locks are those of one node, so the relay cannot see who writes on the others"

# By what the version contains.
_DISTRIBUTED: Final[dict[Dialect, dict[str, str]]] = {
    "mysql": {"TiDB": "TiDB", "Vitess": "Vitess", "OceanBase": "OceanBase", "SingleStore": "SingleStore"},
    "postgres": {
        "CockroachDB": "CockroachDB",
        "-YB-": "YugabyteDB",
        "Redshift": "Amazon Redshift",
        "Greenplum": "Greenplum",
    },
    "sqlite": {},
}
_MULTI_PRIMARY: Final = {"bdr": "EDB Postgres Distributed (BDR)", "spock": "pgEdge (Spock)", "pgactive": "pgactive"}


def judge(dialect: Dialect, facts: Facts) -> Unsuited | None:
    """What is wrong with a server of these facts; None if nothing is known to be."""
    version = f"{facts.get('version', '')} {facts.get('version_comment', '')}"
    for part, name in _DISTRIBUTED[dialect].items():
        if part.lower() in version.lower():
            return Unsuited(name, "distributed", _NODE_IDS)
    return _judge_mysql(facts) if dialect == "mysql" else _judge_postgres(facts)


def _judge_mysql(facts: Facts) -> Unsuited | None:
    if _is_on(facts.get("wsrep_on")):
        return Unsuited("Galera Cluster", "several primaries", _NODE_LOCKS)
    if facts.get("group_replication_group_name") and not _is_on(facts.get("group_replication_single_primary_mode")):
        return Unsuited("Group Replication in multi-primary mode", "several primaries", _NODE_LOCKS)
    if facts.get("auto_increment_increment", "1") != "1":
        why = f"it is {facts['auto_increment_increment']}, as where several servers write, so ids leave gaps"
        return Unsuited("auto_increment_increment", "doubtful", why)
    return None


def _judge_postgres(facts: Facts) -> Unsuited | None:
    for extension, name in _MULTI_PRIMARY.items():
        if f"extension {extension}" in facts:
            return Unsuited(name, "several primaries", _NODE_LOCKS)
    if "extension citus" in facts:
        return Unsuited(
            "Citus", "doubtful", "the outbox must not be a distributed table: its rows have no common order"
        )
    return None


def _is_on(value: str | None) -> bool:
    return (value or "").upper() in ("ON", "1")


def read_facts(transaction: Transaction, dialect: Dialect) -> Facts:
    """What the server says of itself; SQLite has no server."""
    if dialect == "sqlite":
        return {}
    found = transaction.execute(statements_of("inorder.relay", dialect, "server.sql")["facts"]).rows
    return {str(name): str(value) for name, value in found}


class ServerCheck:
    """Refuses an unsuited server before anything is published; asks once."""

    def __init__(self, url: str, *, single_writer_node: bool) -> None:
        self._url = url
        self._single_writer_node = single_writer_node
        self._is_done = False

    def __call__(self) -> None:
        if self._is_done:
            return
        dialect = dialect_of(self._url)
        if dialect != "sqlite":
            self._require(judge(dialect, self._ask(dialect)))
        self._is_done = True

    def _ask(self, dialect: Dialect) -> Facts:
        # A plain connection: servers that only speak the protocol may refuse what our sessions set.
        if dialect == "postgres":
            from inorder.database.postgres import connect, postgres_errors

            with postgres_errors(), connect(self._url, "inorder relay (server)", autocommit=True) as connection:
                return read_facts(CursorTransaction(connection.cursor()), dialect)
        from inorder.database.mysql import connect as connect_mysql
        from inorder.database.mysql import mysql_errors

        with mysql_errors(), closing(connect_mysql(self._url, "inorder relay (server)")) as session:
            return read_facts(CursorTransaction(session.cursor()), dialect)

    def _require(self, found: Unsuited | None) -> None:
        if found is None:
            return
        if found.is_refused(single_writer_node=self._single_writer_node):
            raise ConfigurationError(f"database.url names {found.name}: {found.why}.", hint=found.hint)
        log.warning("relay.server_unsuited", extra={"server": found.name, "reason": found.why})
