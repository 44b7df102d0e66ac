"""Opening connections to PostgreSQL the way a service needs them: named, and quick to notice a dead peer."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from inorder.stores.postgres.sqlstate import our_errors

CONNECT_TIMEOUT_SECONDS = 10


def connect(url: str, application_name: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    """A connection for a SQLAlchemy URL; a server that is away raises `UnreachableError`."""
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with our_errors():
        return psycopg.connect(
            conninfo,
            autocommit=autocommit,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            # A peer that vanished without a word would otherwise be waited for for hours.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
        )


class Reconnecting:
    """One autocommit connection, opened when first needed and again after it broke."""

    def __init__(self, url: str, application_name: str) -> None:
        self._url = url
        self._application_name = application_name
        self._connection: psycopg.Connection[Any] | None = None

    def get(self) -> tuple[psycopg.Connection[Any], bool]:
        """The connection, and whether it is a new one."""
        if self._connection is not None and not self._connection.closed:
            return self._connection, False
        self._connection = connect(self._url, self._application_name, autocommit=True)
        return self._connection, True

    def close(self) -> None:
        """Closes it; the next `get` opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
