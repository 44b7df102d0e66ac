"""[database]: where the outbox and the target tables live."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from inorder.model.errors import ConfigurationError
from inorder.settings.section import Section

# The drivers inorder ships; SQLAlchemy's bare `postgresql://` would ask for one that it does not.
SCHEMES = ("postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql", "sqlite")

# Up to the last @, because an unescaped @ inside a password must not let its tail through.
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):(.*)@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"((?:password|passwd|sslpassword|passfile)=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL with every password in it replaced by three stars."""
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


class SecretUrl(SecretStr):
    """A URL that prints without its password; `get_secret_value()` has all of it."""

    def _display(self) -> str:
        return masked(self._secret_value)


class DatabaseSettings(Section):
    """The database of your transactions."""

    url: SecretUrl | None = Field(
        default=None,
        description=(
            "SQLAlchemy URL of the database that holds the outbox and the tables the pipeline writes, such "
            "as `postgresql+psycopg://user@host/db`. The relay and the pipeline of this version need "
            "PostgreSQL; the outbox can also be written with `mysql+pymysql`, `mariadb+pymysql` and "
            "`sqlite`. The password is masked wherever inorder prints it; `INORDER_DATABASE__URL` keeps it "
            "out of the file. There is no default: a command that needs the database says so."
        ),
    )

    @field_validator("url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(text, str) and text.partition("://")[0] not in SCHEMES:
            raise PydanticCustomError("url", "a SQLAlchemy URL that begins with {schemes}", {"schemes": _schemes()})
        return value

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        if self.url is None:
            raise ConfigurationError(
                "database.url is not set.",
                hint='Set it in inorder.toml: [database] url = "postgresql+psycopg://user@host/db", '
                "or in INORDER_DATABASE__URL.",
            )
        return self.url.get_secret_value()


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)
