"""A session with a Cassandra cluster, its statements prepared once, its errors in our families."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from inorder.database import sql
from inorder.database.schema_plan import SchemaChange, read_change
from inorder.model.errors import (
    AuthenticationError,
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.settings.journal import CassandraSettings, cassandra_options

try:
    from cassandra import (
        AuthenticationFailed,
        ConsistencyLevel,
        DriverException,
        InvalidRequest,
        OperationTimedOut,
        RequestExecutionException,
        Unauthorized,
        UnresolvableContactPoints,
    )
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
    from cassandra.policies import DCAwareRoundRobinPolicy, RoundRobinPolicy, TokenAwarePolicy
    from cassandra.query import PreparedStatement, named_tuple_factory
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "journal.store names Cassandra, but the package cassandra-driver is not installed.",
        hint="Install it with `pip install 'inorder[cassandra]'`.",
    ) from error

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0
DEFAULT_PORT: Final = 9042
DEFAULT_KEYSPACE: Final = "journal"
# Statements in flight are a packet each. With Nagle's delay the second would wait until the node has answered the
# first, and so for the disk.
_AT_ONCE: Final = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
_STATEMENTS = sql.load("inorder.journal", "sql/cassandra/journal.cql")

# The first that fits.
FAMILIES: Final[tuple[tuple[type[Exception], type[InorderError]], ...]] = (
    (AuthenticationFailed, AuthenticationError),
    (Unauthorized, ConfigurationError),
    (NoHostAvailable, UnreachableError),
    (UnresolvableContactPoints, UnreachableError),
    (OperationTimedOut, UnreachableError),
    (InvalidRequest, RejectedError),
    (RequestExecutionException, TransientError),
    (DriverException, TransientError),
)

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the nodes of journal.store are running; the operation is retried.",
    TransientError: "The operation is retried.",
    AuthenticationError: "Check the user and the password of journal.store.",
    ConfigurationError: "Check journal.store and the permissions of its user.",
    RejectedError: "If a table is missing, `inorder schema install --layout journal` creates it.",
}


@contextmanager
def cassandra_errors() -> Iterator[None]:
    try:
        yield
    except tuple(kind for kind, _ in FAMILIES) as error:
        found = _refused_login(error) or error
        family = next(family for kind, family in FAMILIES if isinstance(found, kind))
        text = str(found).strip().splitlines() or [type(found).__name__]
        what = "authentication failed: " if family is AuthenticationError else ""
        raise family(f"Cassandra: {what}{text[0][:300]}.", hint=_HINTS.get(family, "")) from error


def _refused_login(error: Exception) -> Exception | None:
    """The refusal of a password, where each node that answers refuses it; the driver says that no node is available."""
    said = error.errors.values() if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict) else ()
    return next((each for each in said if isinstance(each, AuthenticationFailed)), None)


class CassandraSession:
    """One cluster, connected at the first statement; safe for use by many threads."""

    def __init__(self, url: str) -> None:
        """`cassandra://user:password@host,host:port/keyspace?option=value`, with the options of `CassandraSettings`."""
        parts = urlsplit(url)
        self.options = cassandra_options(url)
        hosts, _, port = parts.netloc.rpartition("@")[2].partition(":")
        self.keyspace = sql.quoted(parts.path.strip("/") or DEFAULT_KEYSPACE)
        self._names = _names(self.keyspace, self.options)
        self._hosts = hosts.split(",") if hosts else ["127.0.0.1"]
        self._port = _number(port or str(DEFAULT_PORT), "the port")
        self._login = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._cluster: Cluster | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._has_clock: bool | None = None

    @property
    def has_clock(self) -> bool:
        """Whether the times of cells are of the present (`cassandra_clock.py`); they are in all new stores."""
        if self._has_clock is None:
            found = {name for (name,) in self.execute("tables", self.keyspace.strip('"'))}
            if self.options.clock_table not in found and self.options.quarantine_table not in found:
                return True  # it is not installed yet
            self._has_clock = self.options.clock_table in found
        return self._has_clock

    def execute(self, name: str, *bound: Any, serial: bool = False) -> Any:
        """Runs a named statement; rows are fetched page by page."""
        with cassandra_errors():
            return self.session.execute(self.prepared(name, serial=serial), bound)

    def execute_ddl(self, statement: str) -> None:
        """Runs a statement that is not prepared."""
        with cassandra_errors():
            self.session.execute(statement, timeout=60)

    def rendered(self, name: str) -> str:
        return _STATEMENTS.render(name, **self._names)

    def prepared(self, name: str, *, serial: bool = False) -> PreparedStatement:
        """A statement of this keyspace, prepared once; `serial` reads see what a compare-and-set has written."""
        label = f"{name}, serial" if serial else name
        found = self._prepared.get(label)
        if found is None:
            with cassandra_errors():
                found = self.session.prepare(self.rendered(name))
            found.is_idempotent = True
            if serial:
                found.consistency_level = _level(self.options.serial_consistency)
            elif _STATEMENTS[name].startswith("SELECT"):
                found.consistency_level = _level(self.options.read_consistency)
            self._prepared[label] = found
        return found

    @property
    def session(self) -> Session:
        with self._lock:
            if self._session is None:
                with cassandra_errors():
                    cluster = self._new_cluster()
                    session = cluster.connect()
                try:
                    check_datacenters(self.options, {host.datacenter for host in cluster.metadata.all_hosts()})
                except ConfigurationError:
                    cluster.shutdown()
                    raise
                self._cluster, self._session = cluster, session
            return self._session

    def close(self) -> None:
        """Disconnects; may be called twice, and used again afterwards."""
        with self._lock:
            cluster, self._cluster, self._session = self._cluster, None, None
            self._prepared.clear()
        if cluster is not None:
            cluster.shutdown()

    def _new_cluster(self) -> Cluster:
        options = self.options
        near = DCAwareRoundRobinPolicy(local_dc=options.local_dc) if options.local_dc else RoundRobinPolicy()
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(near),
            consistency_level=_level(options.write_consistency),  # of batches, too; prepared reads have their own
            serial_consistency_level=_level(options.serial_consistency),
            request_timeout=ANSWER_SECONDS,
            row_factory=named_tuple_factory,
        )
        user, password = self._login
        return Cluster(
            self._hosts,
            self._port,
            auth_provider=PlainTextAuthProvider(user, password) if user else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=5,
            connect_timeout=CONNECT_SECONDS,
            sockopts=_AT_ONCE,
            ssl_context=tls_context(options) if options.tls else None,
        )


def _level(name: str) -> int:
    return int(ConsistencyLevel.name_to_value[name])


def _names(keyspace: str, options: CassandraSettings) -> dict[str, str]:
    """What statements are rendered with."""
    tables = {usual: name if name == usual else sql.quoted(name) for usual, name in options.tables.items()}
    heads = options.metajournal_table
    indexes = {"created_index": sql.quoted(f"{heads}_created_date"), "expiry_index": sql.quoted(f"{heads}_expire_on")}
    return {"keyspace": keyspace, "replication": _replication(options.replicas), **tables, **indexes}


def _replication(replicas: str) -> str:
    if replicas.isdecimal():
        return f"'class': 'SimpleStrategy', 'replication_factor': {replicas}"
    pairs = [each.rpartition(":") for each in replicas.split(",")]
    return ", ".join(["'class': 'NetworkTopologyStrategy'", *(f"'{name}': {count}" for name, _, count in pairs)])


def check_datacenters(options: CassandraSettings, found: Collection[str | None]) -> None:
    """Raises `ConfigurationError` where a local level would mean one data centre now and another one later."""
    if len(found) > 1 and options.is_local and not options.local_dc:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigurationError(
            f"The cluster has several data centres ({names}), and journal.cassandra.local_dc is not set.",
            hint="Set it to the one that replicators and readers use, or all consistency levels to ones that are not"
            " LOCAL.",
        )


def tls_context(options: CassandraSettings) -> ssl.SSLContext:
    """A context that verifies the certificates of nodes."""
    try:
        context = ssl.create_default_context(cafile=options.tls_ca or None)
        context.check_hostname = options.tls_check_hostname
        if options.tls_certificate:
            # Without a password of its own, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(options.tls_certificate, options.tls_key or None, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The certificates of journal.cassandra cannot be loaded: {error}.",
            hint="tls_ca, tls_certificate and tls_key are paths of PEM files; the key has no password.",
        ) from error
    return context


def _number(text: str, what: str) -> int:
    if not text.isdecimal():
        raise ConfigurationError(
            f"{text!r} is not a number ({what} in journal.store).", hint="Write cassandra://host:9042/journal."
        )
    return int(text)


# Keyspace, tables and numbered migrations, made by one installer at a time.
#
# `setting['schema-version']` holds the number of the last migration. A fresh keyspace begins with the last one; an
# older one gets what it lacks, each step followed by its number; a newer one is left as it is, except for the tables
# that only inorder has. The lock is a row with a time to live, taken by a compare-and-set, as other versions take it,
# and only when there is work.

LOCK_ID = "kafka-journal"
LOCK_SECONDS = 60
PATIENCE_SECONDS = 60.0
VERSION_KEY = "schema-version"
IDENTITY_KEY = "store-id"
OURS = frozenset({"clock", "journal_topic", "quarantine", "snapshot"})
"""Tables that Kafka Journal does not have, so that the number of a migration says nothing about them."""
OUR_COLUMNS = {"add_snapshot_place": ("snapshot", "offset")}
"""Statements for columns that inorder's first version did not have, each with one of them; these have no numbers."""

_SCHEMA_STATEMENTS: Mapping[str, str] = sql.load("inorder.journal", "sql/cassandra/journal.cql")
TABLES = tuple(name for name in _SCHEMA_STATEMENTS if name.startswith("create_") and name != "create_keyspace")
MIGRATIONS = tuple(name for name in _SCHEMA_STATEMENTS if name.startswith("migrate_"))
LAST = len(MIGRATIONS) - 1
# The error for an existing column or table: another installer was faster.
_DONE = "already exists"


def install(session: CassandraSession) -> list[str]:
    """Creates what does not exist and runs the pending migrations; returns the statements that were run.

    Safe to run at every start, and by several processes at once.
    """
    found = _tables(session)
    run = [] if "setting" in found else _run(session, ("create_keyspace", "create_locks", "create_setting"))
    if not _steps(_version(session), found):
        return run
    with _lock(session):
        version, found = _version(session), _tables(session)
        for name in _steps(version, found):
            run.append(_migrate(session, name))
            if name in MIGRATIONS:
                _write_version(session, MIGRATIONS.index(name))
        if "journal" not in found:
            _write_version(session, LAST)
        return run


def plan(session: CassandraSession) -> list[SchemaChange]:
    """What `install` would change."""
    found = _tables(session)
    keyspace = session.session.cluster.metadata.keyspaces.get(session.keyspace.strip('"'))
    there = set() if keyspace is None else {*keyspace.tables, *keyspace.indexes}
    names = _steps(_version(session), found) if "setting" in found else ["create_keyspace", *TABLES]
    changes = [_change(session.rendered(name)) for name in names if name != "create_keyspace" or keyspace is None]
    return [each for each in changes if each.kind not in ("table", "index", "drop") or _is_due(each, there)]


def _is_due(change: SchemaChange, there: Collection[str]) -> bool:
    return (change.name in there) == (change.kind == "drop")


def _change(statement: str) -> SchemaChange:
    found = read_change(statement)
    if found is not None:
        return found
    kind = "keyspace" if statement.startswith("CREATE KEYSPACE") else "drop"
    name = statement.split(" EXISTS ")[1].split()[0].rpartition(".")[2].strip('"')
    return SchemaChange(kind, name, name, statement)


def _steps(version: int, found: Mapping[str, Collection[str]]) -> list[str]:
    """The statements that a keyspace with these tables lacks; those that create may find some of them done."""
    lacking = _lacking(found)
    if version >= LAST:
        return [*lacking, *(f"create_{table}" for table in sorted(_ours(found) - found.keys()))]
    migrations = MIGRATIONS[version + 1 :] if "journal" in found else ()
    tables = [name for name in TABLES if name != "create_clock" or "clock" in _ours(found)]
    return [*lacking, *migrations, *tables]


def _ours(found: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Those of our tables that the keyspace should have: not `clock` if our first version has written there."""
    return OURS if "clock" in found or "quarantine" not in found else OURS - {"clock"}


def identify(session: CassandraSession) -> None:
    """Gives the store a random name, unless it has one; of several attempts, the first wins."""
    if identity(session) is None:
        session.execute("add_setting", IDENTITY_KEY, str(uuid4()), datetime.now(UTC), socket.gethostname())


def identity(session: CassandraSession) -> str | None:
    """The random name of the store, which distinguishes notices about it from those about others."""
    row = session.execute("setting", IDENTITY_KEY, serial=True).one()
    return str(row[0]) if row else None


def statements(session: CassandraSession) -> list[str]:
    """The DDL of a fresh keyspace, for printing."""
    return [session.rendered(name) for name in ("create_keyspace", *TABLES)]


def _run(session: CassandraSession, names: Iterable[str]) -> list[str]:
    made = [session.rendered(name) for name in names]
    for statement in made:
        session.execute_ddl(statement)
    return made


def _tables(session: CassandraSession) -> Mapping[str, Collection[str]]:
    """The columns of each table as they are now, by the table's usual name."""
    with cassandra_errors():
        session.session.cluster.refresh_schema_metadata()
    keyspace = session.session.cluster.metadata.keyspaces.get(session.keyspace.strip('"'))
    usual = {name: each for each, name in session.options.tables.items()}
    tables = {} if keyspace is None else keyspace.tables
    return {usual[name]: set(table.columns) for name, table in tables.items() if name in usual}


def _lacking(found: Mapping[str, Collection[str]]) -> list[str]:
    """The statements for columns that our own tables should have and do not."""
    return [name for name, (table, column) in OUR_COLUMNS.items() if column not in found.get(table, (column,))]


def _version(session: CassandraSession) -> int:
    row = session.execute("setting", VERSION_KEY).one()
    return int(row[0]) if row else -1


def _write_version(session: CassandraSession, version: int) -> None:
    session.execute("set_setting", VERSION_KEY, str(version), datetime.now(UTC), socket.gethostname())


def _migrate(session: CassandraSession, name: str) -> str:
    statement = session.rendered(name)
    try:
        session.execute_ddl(statement)
    except RejectedError as error:
        # A step that was run before its number was written.
        if _DONE not in error.message and "conflicts with an existing column" not in error.message:
            raise
    return statement


@contextmanager
def _lock(session: CassandraSession) -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _locked(session):
        if time.monotonic() > deadline:
            raise TransientError(
                f"Timed out after {PATIENCE_SECONDS:g} s: another installer holds the lock {LOCK_ID!r}"
                f" of {session.keyspace}.",
                hint=f"The lock expires within {LOCK_SECONDS} s of its holder's death; try again.",
            )
        threading.Event().wait(0.1)
    try:
        yield
    finally:
        session.execute("unlock", LOCK_ID)


def _locked(session: CassandraSession) -> bool:
    expiry = LOCK_SECONDS * 1000
    return bool(session.execute("lock", LOCK_ID, expiry, datetime.now(UTC), LOCK_SECONDS).one()[0])
