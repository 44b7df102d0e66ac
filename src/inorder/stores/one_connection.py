"""A `Database` on one connection of any driver."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Generic

from inorder.stores.database import NOTHING_BOUND, Cursor, CursorTransaction, Dialect, Result, Transaction
from inorder.stores.reconnecting import C, ReconnectingTo


class OneConnection(ABC, Generic[C]):
    """Transactions that follow one another on a connection; what differs between the drivers is in the subclasses."""

    dialect: Dialect

    def __init__(self, connecting: ReconnectingTo[C]) -> None:
        self._connecting = connecting
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begins; leaving the block commits, an exception rolls back."""
        with self._lock, self._our_errors():
            connection, _ = self._connecting.get()
            with self._begun(connection) as cursor:
                yield CursorTransaction(cursor, self._spelt)

    def execute(self, statement: str, parameters: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement, which the connection commits by itself."""
        with self._lock, self._our_errors():
            connection, _ = self._connecting.get()
            with closing(connection.cursor()) as cursor:
                return CursorTransaction(cursor, self._spelt).execute(statement, parameters)

    def install(self, statements: Iterable[str]) -> None:
        """Runs DDL, one installer at a time."""
        with self._lock, self._our_errors():
            self._install(self._connecting.get()[0], statements)

    def close(self) -> None:
        """Closes the connection, once no transaction is open on it."""
        with self._lock:
            self._connecting.close()

    @abstractmethod
    def _our_errors(self) -> AbstractContextManager[None]:
        """Turns the driver's errors into ours."""

    @abstractmethod
    def _begun(self, connection: C) -> AbstractContextManager[Cursor]:
        """A transaction and a cursor in it."""

    @abstractmethod
    def _install(self, connection: C, statements: Iterable[str]) -> None:
        """Runs DDL under a lock that installers of all processes share."""

    def _spelt(self, statement: str) -> str:
        """The statement with bound values as the driver wants them."""
        return statement
