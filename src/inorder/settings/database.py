"""[database]: where the outbox and the target tables live."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

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

    @field_validator("url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return with_known_scheme(value, "a SQLAlchemy URL", SCHEMES)

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        return required(self.url, "database", "postgresql+psycopg://user@host/db")
