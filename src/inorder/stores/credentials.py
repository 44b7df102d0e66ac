"""Connecting as the user of a credentials file, where the URL names one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from inorder.model.credentials import PARAMETER, read_login
from inorder.model.errors import ConfigurationError, UnreachableError


def with_login(url: str) -> URL:
    """The URL to connect with: user and password out of the file that it names, read now."""
    parsed = make_url(url)
    file = parsed.query.get(PARAMETER)
    if not isinstance(file, str):
        return parsed
    login = read_login(Path(file))
    return parsed.difference_update_query([PARAMETER]).set(username=login.user, password=login.password)


@contextmanager
def patience(url: str) -> Iterator[None]:
    """While a password changes, file and server disagree for a moment; the next try reads the file again."""
    try:
        yield
    except ConfigurationError as error:
        if f"{PARAMETER}=" not in url:
            raise
        hint = "The credentials file is read again for the next try."
        raise UnreachableError(error.message, hint=hint) from error
