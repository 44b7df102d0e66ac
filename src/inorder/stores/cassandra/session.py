"""A session with a Cassandra cluster, its statements prepared once, its errors in our families."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from inorder import sql
from inorder.model.errors import ConfigurationError, InorderError, RejectedError, TransientError, UnreachableError

try:
    from cassandra import (
        AuthenticationFailed,
        ConsistencyLevel,
        DriverException,
        InvalidRequest,
        OperationTimedOut,
        RequestExecutionException,
        Unauthorized,
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
# Statements that are on their way together are a packet each. With Nagle's delay the second would wait until the node
# has answered the first, and with it for the disk.
_AT_ONCE: Final = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
_STATEMENTS = sql.load("inorder.stores.cassandra", "journal.cql")

# The first that fits.
FAMILIES: Final[tuple[tuple[type[Exception], type[InorderError]], ...]] = (
    (AuthenticationFailed, ConfigurationError),
    (Unauthorized, ConfigurationError),
    (NoHostAvailable, UnreachableError),
    (OperationTimedOut, UnreachableError),
    (InvalidRequest, RejectedError),
    (RequestExecutionException, TransientError),
    (DriverException, TransientError),
)

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the nodes of journal.store run; it is tried again.",
    TransientError: "It is tried again.",
    ConfigurationError: "Check journal.store and the rights of its user.",
    RejectedError: "Where a table is missing, `inorder schema install --layout journal` makes it.",
}


@contextmanager
def our_errors() -> Iterator[None]:
    """Errors of the driver, as ours."""
    try:
        yield
    except tuple(kind for kind, _ in FAMILIES) as error:
        family = next(family for kind, family in FAMILIES if isinstance(error, kind))
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise family(f"Cassandra: {text[0][:300]}.", hint=_HINTS.get(family, "")) from error


class CassandraSession:
    """One cluster, connected at the first statement; many threads may use it."""

    def __init__(self, url: str) -> None:
        """`cassandra://user:password@host,host:port/keyspace?dc=name&replicas=3`."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        hosts, _, port = parts.netloc.rpartition("@")[2].partition(":")
        self.keyspace = sql.quoted(parts.path.strip("/") or DEFAULT_KEYSPACE)
        self.replicas = _number(query.get("replicas", ["1"])[0], "replicas")
        self._hosts = hosts.split(",") if hosts else ["127.0.0.1"]
        self._port = _number(port or str(DEFAULT_PORT), "the port")
        self._login = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._dc = query.get("dc", [""])[0]
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._cluster: Cluster | None = None
        self._prepared: dict[str, PreparedStatement] = {}

    def execute(self, name: str, *bound: Any, serial: bool = False) -> Any:
        """Runs a named statement; what it returns is fetched page by page."""
        with our_errors():
            return self.session.execute(self.prepared(name, serial=serial), bound)

    def execute_ddl(self, statement: str) -> None:
        """Runs a statement that is not prepared."""
        with our_errors():
            self.session.execute(statement, timeout=60)

    def rendered(self, name: str) -> str:
        """A statement of this keyspace."""
        return _STATEMENTS.render(name, keyspace=self.keyspace, replicas=str(self.replicas))

    def prepared(self, name: str, *, serial: bool = False) -> PreparedStatement:
        """A statement of this keyspace, prepared once; `serial` reads see what a compare-and-set has written."""
        label = f"{name}, serial" if serial else name
        found = self._prepared.get(label)
        if found is None:
            with our_errors():
                found = self.session.prepare(self.rendered(name))
            found.is_idempotent = True
            if serial:
                found.consistency_level = ConsistencyLevel.LOCAL_SERIAL
            self._prepared[label] = found
        return found

    @property
    def session(self) -> Session:
        """The driver's session."""
        with self._lock:
            if self._session is None:
                self._cluster = self._new_cluster()
                with our_errors():
                    self._session = self._cluster.connect()
            return self._session

    def close(self) -> None:
        """Leaves the cluster; may be called twice, and used again afterwards."""
        with self._lock:
            cluster, self._cluster, self._session = self._cluster, None, None
            self._prepared.clear()
        if cluster is not None:
            cluster.shutdown()

    def _new_cluster(self) -> Cluster:
        near = DCAwareRoundRobinPolicy(local_dc=self._dc) if self._dc else RoundRobinPolicy()
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(near),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
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
        )


def _number(text: str, what: str) -> int:
    if not text.isdecimal():
        raise ConfigurationError(
            f"{text!r} is not a number ({what} in journal.store).", hint="Write cassandra://host:9042/journal."
        )
    return int(text)
