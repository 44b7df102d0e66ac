"""A connection that is there when it is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar


class AnyConnection(Protocol):
    """What the drivers' connections have in common."""

    def cursor(self) -> Any: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=AnyConnection)


class ReconnectingTo(ABC, Generic[C]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def __init__(self, url: str, application_name: str) -> None:
        self._url = url
        self._application_name = application_name
        self._connection: C | None = None

    def get(self) -> tuple[C, bool]:
        """The connection, and whether it is a new one."""
        if self._connection is not None and self._is_open(self._connection):
            return self._connection, False
        self._connection = self._open()
        return self._connection, True

    def close(self) -> None:
        """Closes it; the next `get` opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and self._is_open(connection):
            connection.close()

    @abstractmethod
    def _open(self) -> C: ...

    @abstractmethod
    def _is_open(self, connection: C) -> bool: ...
