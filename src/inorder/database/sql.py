"""Named SQL: statements live in `.sql` files, and Python looks them up by name.

A file is a list of statements, each headed by its name and a comment that says what it is for:

    -- name: purge
    -- Removes rows whose records are known to be committed.
    DELETE FROM {table} WHERE id = ANY(%(ids)s);

`{table}` and other names in braces are identifiers, quoted by `quoted`; values are always bound by the driver.
Parameters are in the style of psycopg and PyMySQL, `%(ids)s`, and a literal `%` is `%%`; `named` converts them to the
style of sqlite3 and SQLAlchemy, `:ids`. Dialects are grouped in families: `postgres`, `mysql` (with MariaDB), `sqlite`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from inorder.model.errors import ConfigurationError

_HEADING = re.compile(r"^-- name: (?P<name>\w+)\n", re.MULTILINE)
_BOUND = re.compile(r"%(?:\((?P<name>\w+)\)s|%)")
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}\Z")


class Statements(Mapping[str, str]):
    """The statements of one file, by name."""

    def __init__(self, statements: dict[str, str]) -> None:
        self._statements = statements

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)

    def render(self, name: str, **identifiers: str) -> str:
        """The statement with its identifiers filled in; they must come from `quoted`."""
        return self._statements[name].format(**identifiers)

    def starting_with(self, prefix: str) -> list[str]:
        """The statements whose names start with the prefix, in the order of the file."""
        return [self._statements[name] for name in self._statements if name.startswith(prefix)]


@cache
def load(package: str, filename: str) -> Statements:
    """Reads a `.sql` file that ships inside `package`."""
    text = files(package).joinpath(filename).read_text("utf-8")
    return Statements(parse(text))


def parse(text: str) -> dict[str, str]:
    """Splits the text of a `.sql` file into its named statements, headings and comments removed."""
    parts = _HEADING.split(text)[1:]
    return {name: _body(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _body(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().rstrip(";")


def named(statement: str) -> str:
    """The statement with parameters in the style of sqlite3 and of SQLAlchemy's `text()`: `:ids`."""
    return _BOUND.sub(lambda found: f":{found['name']}" if found["name"] else "%", statement)


def quoted(name: str, quote: str = '"') -> str:
    """Quotes a table name, with or without a schema; raises `ConfigurationError` for anything else."""
    parts = name.split(".")
    if len(parts) > 2 or not all(_PART.match(part) for part in parts):
        raise ConfigurationError(
            f"{name!r} is not a table name.", hint="Use letters, digits and _, with at most one schema before a dot."
        )
    return ".".join(f"{quote}{part}{quote}" for part in parts)


Family = Literal["postgres", "mysql", "sqlite"]

# By the name that SQLAlchemy or Django gives a database; a family is also the name of its .sql files.
_FAMILIES: dict[str, Family] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


def family(dialect: str) -> Family:
    """The family of a name that SQLAlchemy or Django gives a database."""
    if dialect not in _FAMILIES:
        raise ConfigurationError(f"{dialect!r} is not a supported database.", hint=f"Known: {', '.join(_FAMILIES)}.")
    return _FAMILIES[dialect]


def quoted_table(dialect: str, table: str) -> str:
    """Quotes a table name for a dialect."""
    return quoted(table, "`" if family(dialect) == "mysql" else '"')
