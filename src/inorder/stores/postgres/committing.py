"""Ending a transaction whose commit may be answered or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from inorder.model.errors import UnknownOutcomeError
from inorder.stores.postgres.sqlstate import classified

Connection = psycopg.Connection[Any]


@contextmanager
def committed(connection: Connection, what: str) -> Iterator[None]:
    """Commits after the block, rolls back after an exception; the connection is not in autocommit mode."""
    try:
        yield
    except BaseException:
        abandon(connection)
        raise
    commit(connection, what)


def commit(connection: Connection, what: str) -> None:
    """Commits; a lost answer is an `UnknownOutcomeError`, and a connection that is lost is closed."""
    try:
        connection.commit()
    except psycopg.Error as error:
        lost = connection.broken or connection.closed
        abandon(connection)
        if lost:
            raise UnknownOutcomeError(f"The connection was lost while {what} was committed.") from error
        raise classified(error) from error


def abandon(connection: Connection) -> None:
    """Rolls back what is open, if the connection still can."""
    try:
        connection.rollback()
    except psycopg.Error:
        # Nothing to save: the server rolls back what a lost session left open.
        connection.close()
