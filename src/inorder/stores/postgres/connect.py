"""Opening connections to PostgreSQL the way a service needs them: named, and quick to notice a dead peer."""

from __future__ import annotations

from typing import Any

import psycopg

from inorder.stores.credentials import patience, with_login
from inorder.stores.postgres.sqlstate import our_errors
from inorder.stores.reconnecting import ReconnectingTo

CONNECT_TIMEOUT_SECONDS = 10

# The server's patience with us, as long as a Kafka transaction of ours may last. A leader that is paused while it reads
# the answer to a mark, or within a transaction, would keep rows locked for whoever took over from it.
_SESSION = """
    SELECT set_config('tcp_user_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '10s', false)
"""


def connect(url: str, application_name: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    """A connection for a SQLAlchemy URL; a server that is away raises `UnreachableError`."""
    with patience(url), our_errors():
        conninfo = with_login(url).set(drivername="postgresql").render_as_string(hide_password=False)
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


class Reconnecting(ReconnectingTo[psycopg.Connection[Any]]):
    """One autocommit connection, opened when first needed and again after it broke."""

    def _open(self) -> psycopg.Connection[Any]:
        connection = connect(self._url, self._application_name, autocommit=True)
        connection.execute(_SESSION)
        return connection

    def _is_open(self, connection: psycopg.Connection[Any]) -> bool:
        return not connection.closed
