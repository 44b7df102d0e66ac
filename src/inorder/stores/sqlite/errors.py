"""SQLite's errors in our families, by result code: one table, no reading of texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inorder.model.errors import ConfigurationError, InorderError, RejectedError, TransientError

# A code that is not named here means that something is to be put right by people.
FAMILIES: Final[dict[int, type[InorderError]]] = {
    sqlite3.SQLITE_BUSY: TransientError,  # another process writes
    sqlite3.SQLITE_LOCKED: TransientError,
    sqlite3.SQLITE_NOMEM: TransientError,
    sqlite3.SQLITE_INTERRUPT: TransientError,
    sqlite3.SQLITE_IOERR: TransientError,
    sqlite3.SQLITE_FULL: TransientError,
    sqlite3.SQLITE_PROTOCOL: TransientError,
    sqlite3.SQLITE_SCHEMA: TransientError,  # it changed while the statement was prepared
    sqlite3.SQLITE_CONSTRAINT: RejectedError,
    sqlite3.SQLITE_MISMATCH: RejectedError,
    sqlite3.SQLITE_TOOBIG: RejectedError,
}

_HINTS: Final[dict[type[InorderError], str]] = {
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check the file of database.url; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: sqlite3.Error) -> InorderError:
    """Our error for a driver's error; the low byte of an extended code is the code."""
    code = getattr(error, "sqlite_errorcode", None)
    family = ConfigurationError if code is None else FAMILIES.get(code & 0xFF, ConfigurationError)
    name = f" [{error.sqlite_errorname}]" if code is not None else ""
    return family(f"SQLite: {str(error).rstrip('.')}{name}.", hint=_HINTS.get(family, ""))


@contextmanager
def our_errors() -> Iterator[None]:
    """Turns sqlite3's errors into ours, the original kept as the cause."""
    try:
        yield
    except sqlite3.Error as error:
        raise classified(error) from error
