"""User and password in a file of their own, named in the URL that they belong to.

The URL of a database goes through many hands, to Spark's tasks too, before somebody connects with it. So it carries the
path of the file, and whoever connects reads the file then: a password that was changed counts from the next connection.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url

from inorder.model.errors import ConfigurationError, UnreachableError

PARAMETER = "inorder_credentials_file"
"""The name under which the path stands in the query of a URL."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who connects, and the word that proves it."""

    user: str
    password: str = field(repr=False)


def naming(url: str, file: Path) -> str:
    """The URL with the path of the file in it."""
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{PARAMETER}={quote(str(file.absolute()))}"


def read_login(file: Path) -> Login:
    """User and password of a TOML or JSON file; what is wrong with it is a `ConfigurationError`."""
    content = _parsed(file)
    user, password = content.get("user"), content.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ConfigurationError(f"{file} lacks user or password.", hint=_SHAPE)
    return Login(user, password)


def _parsed(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.", hint=_SHAPE) from error
    try:
        # The parsers' own words may quote the line, with the password in it.
        content = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError:
        raise ConfigurationError(f"{file} is neither TOML nor JSON.", hint=_SHAPE) from None
    return content if isinstance(content, dict) else {}


_SHAPE = 'Write user = "…" and password = "…" into it, each on a line of its own.'


# Connecting as the user of a credentials file, where the URL names one.


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
