"""[database]: where the outbox and the target tables live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from inorder.model.credentials import naming, read_login
from inorder.model.errors import ConfigurationError
from inorder.settings.section import Section
from inorder.settings.url import SecretUrl, required, with_known_scheme

# The drivers inorder ships; SQLAlchemy's bare `postgresql://` would ask for one that it does not.
SCHEMES = ("postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql", "sqlite")


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

    read_only_url: SecretUrl | None = Field(
        default=None,
        description=(
            "Strategy `polling`: URL of a replica from which the events of the outbox are read, of the same kind as "
            "`url`. It may lag behind. Offset, missing and exceeded events are read and written at `url`, and so is "
            "whatever decides that an event will never come. Without it everything goes to `url`."
        ),
    )
    credentials_file: Path | None = Field(
        default=None,
        description=(
            "A file with `user` and `password`, as TOML or JSON, that go into `url` and `read_only_url` in place of "
            "what stands there. It is read for each new connection, so a password may change while the relay "
            "runs."
        ),
    )

    @field_validator("url", "read_only_url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return with_known_scheme(value, "a SQLAlchemy URL", SCHEMES)

    @field_validator("credentials_file")
    @classmethod
    def _readable(cls, file: Path | None) -> Path | None:
        if file is not None:
            try:
                read_login(file)
            except ConfigurationError as error:
                raise PydanticCustomError("credentials", "{text}", {"text": error.message}) from None
        return file

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        return self._with_credentials(required(self.url, "database", "postgresql+psycopg://user@host/db"))

    def reading_url(self) -> str:
        """The URL in clear from which the events of the outbox are read."""
        if self.read_only_url is None:
            return self.require_url()
        return self._with_credentials(self.read_only_url.get_secret_value())

    def _with_credentials(self, url: str) -> str:
        """The path travels in the URL, so that whoever connects with it reads the file anew."""
        return url if self.credentials_file is None else naming(url, self.credentials_file)
