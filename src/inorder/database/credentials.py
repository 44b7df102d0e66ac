"""Credentials files: user and password of a database in a file of their own, named in the URL.

The URL of a database passes through many modules, and to Spark's tasks, before a connection is opened with it. So it
carries the path of the file, and `read_credentials` reads the file at each connect: a changed password takes effect
with the next connection.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from inorder.model.errors import AuthenticationError, ConfigurationError, UnreachableError
from inorder.model.secrets import is_ambiguous, mask_url

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

PARAMETER = "inorder_credentials_file"
"""The query parameter of the URL that holds the path."""

_SHAPE = 'Write user = "…" and password = "…" into it, each on a line of its own.'


@dataclass(frozen=True, slots=True)
class Login:
    """A user name and its password."""

    user: str
    password: str = field(repr=False)


def add_credentials_file(url: str, file: Path) -> str:
    """The URL with the path of the file as a query parameter."""
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{PARAMETER}={quote(str(file.absolute()))}"


def read_credentials(url: str) -> URL:
    """The URL to connect with: user and password come from the file that it names, read now."""
    parsed = parse_url(url)
    file = parsed.query.get(PARAMETER)
    if not isinstance(file, str):
        return parsed
    login = read_login(Path(file))
    return parsed.difference_update_query([PARAMETER]).set(username=login.user, password=login.password)


def parse_url(url: str) -> URL:
    """The parts of a SQLAlchemy URL; raises `ConfigurationError` where a part of its password would be lost."""
    # Imported here, because settings need this module and no connection: it takes as long as all the rest of them.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        if not is_ambiguous(url):
            return make_url(url)
    except (ArgumentError, ValueError):
        pass  # The parser quotes what it cannot read, which may be a part of the password.
    raise ConfigurationError(
        f"{mask_url(url)!r} cannot be read as a URL.",
        hint="Escape special characters of the password: @ as %40, / as %2F, ? as %3F, # as %23, : as %3A.",
    )


@contextmanager
def retry_login(url: str) -> Iterator[None]:
    """Makes a failed login transient where the URL names a credentials file.

    While a password is changed, file and server disagree for a moment; the next attempt reads the file again.
    """
    try:
        yield
    except (ConfigurationError, AuthenticationError) as error:
        if f"{PARAMETER}=" not in url:
            raise
        hint = "The credentials file is read again for the next attempt."
        raise UnreachableError(error.message, hint=hint) from error


def read_login(file: Path) -> Login:
    """Reads user and password from a TOML or JSON file; raises `ConfigurationError` where that fails."""
    content = _parse(file)
    user, password = content.get("user"), content.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ConfigurationError(f"{file} lacks user or password.", hint=_SHAPE)
    return Login(user, password)


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.", hint=_SHAPE) from error
    try:
        content = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        # The parser's own message may quote the line with the password.
        raise ConfigurationError(f"{file} is neither TOML nor JSON.", hint=_SHAPE) from None
    return content if isinstance(content, dict) else {}
