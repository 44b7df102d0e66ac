"""PostgreSQL's errors in our families, by SQLSTATE class: one table, no reading of texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)

FAMILIES: Final[dict[str, type[InorderError]]] = {
    "08": UnreachableError,  # connection exception
    "57": UnreachableError,  # operator intervention: shutting down, starting up, session ended
    "25": TransientError,  # read-only or idle too long: a fail-over is under way, or we were paused
    "40": TransientError,  # deadlock, serialisation
    "53": TransientError,  # disk, memory or connections used up
    "55": TransientError,  # lock not available in time
    "58": TransientError,  # input/output error of the server
    "22": RejectedError,  # data exception
    "23": RejectedError,  # constraint
    "44": RejectedError,  # check option of a view
    "P0": RejectedError,  # raised by a trigger of the table's owner
    "54": RejectedError,  # too large for an index or a row
    "28": ConfigurationError,  # wrong user or password
    "3D": ConfigurationError,  # no such database
    "42": ConfigurationError,  # no such table or column, no right to it
}

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of database.url runs; the work is tried again.",
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check database.url and its rights; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: psycopg.Error) -> InorderError:
    """Our error for a driver's error; no SQLSTATE means that the server was not reached or went away."""
    family = _family(error)
    diagnosis = error.diag.message_primary or str(error).strip().splitlines()[0]
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    state = f" [SQLSTATE {error.sqlstate}]" if error.sqlstate else ""
    return family(f"PostgreSQL: {diagnosis}{detail}{state}.", hint=_HINTS.get(family, ""))


def _family(error: psycopg.Error) -> type[InorderError]:
    if error.sqlstate:
        return FAMILIES.get(error.sqlstate[:2], ConfigurationError)
    # psycopg refuses unsendable values as DataError by itself; all else without a state is a lost connection.
    return RejectedError if isinstance(error, psycopg.DataError) else UnreachableError


@contextmanager
def our_errors() -> Iterator[None]:
    """Turns psycopg's errors into ours, the original kept as the cause."""
    try:
        yield
    except psycopg.Error as error:
        raise classified(error) from error
