"""PostgreSQL as a `Database`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg

from inorder.stores.database import Cursor
from inorder.stores.one_connection import OneConnection
from inorder.stores.postgres.connect import Reconnecting
from inorder.stores.postgres.install import install
from inorder.stores.postgres.sqlstate import our_errors


class PostgresDatabase(OneConnection[psycopg.Connection[Any]]):
    """A transaction is a block on the connection."""

    dialect = "postgres"

    def __init__(self, url: str, application_name: str) -> None:
        super().__init__(Reconnecting(url, application_name))

    def _our_errors(self) -> AbstractContextManager[None]:
        return our_errors()

    @contextmanager
    def _begun(self, connection: psycopg.Connection[Any]) -> Iterator[Cursor]:
        with connection.transaction(), connection.cursor() as cursor:
            yield cursor

    def _install(self, connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
        install(connection, statements)
