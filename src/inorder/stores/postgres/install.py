"""Making tables, one installer at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

# Two sessions at once race inside CREATE TABLE IF NOT EXISTS, and one of them fails.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('inorder install'))"


@contextmanager
def one_installer(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A transaction, of its own or part of the one that is open, in which nobody else makes or drops our tables."""
    with connection.transaction():
        connection.execute(_LOCK)
        yield connection


def install(connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
    """Runs DDL that may be run again, in a transaction of its own or as part of the one that is open."""
    with one_installer(connection):
        for statement in statements:
            connection.execute(statement)
