"""Finding the primary of a database, and leaving a server that no longer is it.

**Authority.** The server itself: a session that may write is one on the primary. PostgreSQL reports
`default_transaction_read_only` and `in_hot_standby` with every answer since version 14, older ones and poolers are
asked for `transaction_read_only`; MySQL and MariaDB are asked for `read_only`. What is assumed: a failover makes the
old primary read-only, or stops it, before it makes another server writable. Two servers that both accept writes are a
split brain, which no client can repair.

**Several hosts.** A URL may name several, `postgresql+psycopg://user@one:5432,two:5432/db`; they are tried in turn and
the first writable one is used. With one host, which a virtual address or a DNS name moves, the same check makes the
next attempt wait until the address has moved.

**Invariants.**
- A connection that was refused a write because its session is read-only is closed at once, never used again.
- A connection that only reads is checked after it has read: what it returned is what the primary had.
- Two connections that must see the same server (`follows`) are opened in order, and if the first is opened again, so
  is the second. The second is thus writable at a time when the first already was; with the assumption above both are
  on one server. Otherwise rows that were deleted through one would still be read through the other.
- A connection that is pinned is never replaced unnoticed: its user has learnt things that hold for one session only.

| what happens                                          | then                                                        |
|---|---|
| the old primary is stopped                            | the connection breaks; the next call tries all hosts         |
| it restarts as a standby                              | the same; the host refuses, `ReadOnlyServerError` is retried |
| it is made read-only under a live session             | the next write or read fails, and the connection is closed   |
| every host is read-only                               | `ReadOnlyServerError` until one is promoted                  |
| the address moves while the old session lives on      | as above: the next connection finds the new server           |
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from inorder.model.errors import AuthenticationError, ConfigurationError, ReadOnlyServerError, UnreachableError

ASK_SECONDS: Final = 1.0
"""A server that does not report whether it is read-only is asked once in this time, while its connection is used."""


class AnyConnection(Protocol):
    """What the connections of all drivers have in common."""

    def cursor(self) -> Any: ...

    def close(self) -> None: ...


_REPLACED: Final = "The connection was replaced in the meantime."
READ_ONLY_HINT: Final = (
    "A failover is under way, or database.url names a replica. It is retried with another connection."
)

C = TypeVar("C", bound=AnyConnection)

_HOSTS = re.compile(r"(?P<before>[\w+]+://(?:[^:/@]*(?::[^@]*)?@)?)(?P<hosts>[^/?]*)(?P<after>.*)", re.DOTALL)


def each_host(url: str) -> list[str]:
    """A URL of one host for each host of a URL, in the order in which they are tried.

    >>> each_host("mysql+pymysql://me:pw@one:3306,two/shop?ssl=true")
    ['mysql+pymysql://me:pw@one:3306/shop?ssl=true', 'mysql+pymysql://me:pw@two/shop?ssl=true']
    >>> each_host("sqlite:///a,b.db")
    ['sqlite:///a,b.db']
    """
    found = _HOSTS.fullmatch(url)
    if found is None or "," not in found["hosts"]:
        return [url]
    return [f"{found['before']}{host}{found['after']}" for host in found["hosts"].split(",")]


def connect_in_turn(url: str, connect: Callable[[str], C]) -> C:
    """The connection to the first host that answers and accepts it; raises what all of them say otherwise."""
    failed: list[ConfigurationError | UnreachableError] = []
    for one in each_host(url):
        try:
            return connect(one)
        except (ConfigurationError, UnreachableError) as error:
            failed.append(error)
    if len(failed) == 1 or all(isinstance(error, ConfigurationError | AuthenticationError) for error in failed):
        raise failed[0]
    answers = " ".join(error.message for error in failed)
    raise UnreachableError(
        f"None of the {len(failed)} hosts can be used: {answers}", hint="It is retried, with each of them in turn."
    ) from failed[-1]


class ReconnectingTo(ABC, Generic[C]):
    """One autocommit connection, opened when first needed, and again after it broke or its server became read-only.

    Any thread may use it, one at a time.
    """

    def __init__(
        self,
        url: str,
        application_name: str,
        *,
        is_primary: bool = True,
        follows: ReconnectingTo[C] | None = None,
        on_open: Callable[[C], object] = lambda _connection: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_primary` is False for a replica, which is read-only. `on_open` prepares each new connection."""
        self._url = url
        self._application_name = application_name
        self._is_primary = is_primary
        self._follows = follows
        self._on_open = on_open
        self._clock = clock
        self._turn = threading.Lock()
        self._connection: C | None = None
        self._is_outdated = False
        self._asked_at = 0.0
        self._opened = 0
        self._followed = 0
        self._is_pinned = False

    def pin(self) -> None:
        """From now on each use is of the current session, which is opened if there is none.

        Once that is gone all uses raise `UnreachableError`, until it is pinned again or unpinned.
        """
        self.unpin()
        with self.use():
            self._is_pinned = True

    def unpin(self) -> None:
        self._is_pinned = False

    @contextmanager
    def use(self, session: int | None = None) -> Iterator[C]:
        """The connection, for one transaction or statement; raises the driver's errors as inorder's.

        It is closed after an error that says that it is broken, or that its server is not the primary. With the number
        of a session, it is used only if it is still that one.
        """
        with self._turn:
            try:
                with self._our_errors():
                    connection = self.get()
                    if session not in (None, self._opened):
                        raise UnreachableError(_REPLACED)
                    yield connection
                    self._require_primary(connection)
            except UnreachableError as error:
                self._drop()
                if isinstance(error, ReadOnlyServerError) and self._follows is not None:
                    self._follows.outdate()
                raise

    def session(self) -> int | None:
        """The number of the current session, opened if there is none; None if it may change without our notice."""
        with self.use() as connection:
            return self._opened if self._keeps_session(connection) else None

    def outdate(self) -> None:
        """Opens another connection at the next use; the current one may be in use by another thread."""
        self._is_outdated = True

    def close(self) -> None:
        """Waits until it is not used, then closes the connection; the next use opens another."""
        with self._turn:
            self._drop()

    def get(self) -> C:
        """The connection, for a thread that has it to itself and checks for itself whether it works."""
        followed = self._follows.count_opened() if self._follows is not None else 0
        if self._is_outdated or followed != self._followed:
            self._drop()
        if self._connection is None or not self._is_open(self._connection):
            if self._is_pinned:
                raise UnreachableError(_REPLACED)
            self._connection = self._open()
            self._is_outdated, self._followed, self._asked_at = False, followed, self._clock()
            self._opened += 1
            self._on_open(self._connection)
        return self._connection

    def count_opened(self) -> int:
        """How many connections were opened; opens one if there is none, unless it is in use."""
        if self._turn.acquire(blocking=False):
            try:
                self.get()
            finally:
                self._turn.release()
        return self._opened

    def _require_primary(self, connection: C) -> None:
        if not self._is_primary:
            return
        is_read_only = self._reports_read_only(connection)
        if is_read_only is None and self._clock() - self._asked_at >= ASK_SECONDS:
            is_read_only = self._ask_read_only(connection)
            self._asked_at = self._clock()
        if is_read_only:
            raise ReadOnlyServerError("The server of this session is read-only.", hint=READ_ONLY_HINT)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._is_open(connection):
            connection.close()

    def _keeps_session(self, _connection: C) -> bool:
        """Whether a connection stays with one session of one server; one to a pooler does not."""
        return True

    @abstractmethod
    def _open(self) -> C: ...

    @abstractmethod
    def _is_open(self, connection: C) -> bool: ...

    @abstractmethod
    def _our_errors(self) -> AbstractContextManager[None]:
        """Raises the driver's errors as inorder's."""

    @abstractmethod
    def _reports_read_only(self, connection: C) -> bool | None:
        """What the server said with its last answer; None if it says nothing of the kind."""

    @abstractmethod
    def _ask_read_only(self, connection: C) -> bool: ...
