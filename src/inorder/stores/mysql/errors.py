"""The errors of MySQL and MariaDB in our families, by number: one table, no reading of texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.stores.mysql.driver import pymysql

# A number that is not named here means that something is to be put right by people.
_NUMBERS: Final[dict[type[InorderError], tuple[int, ...]]] = {
    UnreachableError: (
        *(0, 2002, 2003, 2005, 2006, 2013, 2055),  # the driver's own: not reached, or lost on the way
        *(1053, 1077, 1079, 1152, 1184),  # shutting down, aborted
        *(1158, 1159, 1160, 1161),  # the network, as the server saw it
        *(1927, 4031),  # our session was ended by somebody, or for being idle
    ),
    TransientError: (
        *(1205, 1213, 3572, 1317, 3024, 1969, 1020),  # locks, deadlock, statement interrupted or changed under us
        *(1040, 1203, 1226),  # connections used up
        *(1290, 1792, 1836, 3100),  # read-only: a fail-over is under way
        *(1021, 1030, 1037, 1038, 1041, 1114, 1135, 1180),  # disk, memory or threads used up
    ),
    RejectedError: (
        *(1048, 1062, 1364, 1451, 1452, 1557, 1586, 3819, 4025),  # constraints
        *(1264, 1265, 1292, 1366, 1406, 1411, 3140, 4038),  # data
        *(1118, 1153, 1301),  # too large for a row, a packet or a function
        1644,  # signalled by a trigger of the table's owner
    ),
}

FAMILIES: Final[dict[int, type[InorderError]]] = {
    number: family for family, numbers in _NUMBERS.items() for number in numbers
}

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of database.url runs; the work is tried again.",
    TransientError: "It is tried again.",
    ConfigurationError: (
        "Check database.url and its rights; `inorder doctor` tells what is missing, `inorder schema install` makes it."
    ),
}


def classified(error: pymysql.MySQLError) -> InorderError:
    """Our error for a driver's error; no number means that the connection is gone."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]).strip().rstrip(".") if error.args else ""
    family = FAMILIES.get(number, ConfigurationError)
    return family(
        f"MySQL: {text or 'the connection is closed'} [error {number}].",
        hint=_HINTS.get(family, ""),
    )


@contextmanager
def our_errors() -> Iterator[None]:
    """Turns PyMySQL's errors into ours, the original kept as the cause."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise classified(error) from error
