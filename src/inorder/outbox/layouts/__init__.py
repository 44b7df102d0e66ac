"""The tables an outbox may live in: one folder a layout, one `.sql` file a dialect."""

from __future__ import annotations

from inorder.model.errors import ConfigurationError
from inorder.sql import Statements, load, quoted

LAYOUTS = ("native",)

# The names SQLAlchemy and Django give a database, and the file, less its ending, that speaks its dialect.
_FAMILIES = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


def install_statements(layout: str, dialect: str, table: str) -> tuple[str, ...]:
    """What creates the table of a layout, in order; running it again changes nothing."""
    named = statements(layout, dialect)
    names = [name for name in named if name.startswith("install")]
    return tuple(named.render(name, table=quoted_table(dialect, table)) for name in names)


def statements(layout: str, dialect: str) -> Statements:
    """The named statements of a layout in the dialect of a database."""
    if layout not in LAYOUTS:
        raise ConfigurationError(f"{layout!r} is not a layout.", hint=f"Known layouts: {', '.join(LAYOUTS)}.")
    return load(f"{__name__}.{layout}", f"{family(dialect)}.sql")


def family(dialect: str) -> str:
    """`postgres`, `mysql` or `sqlite`, from a name that SQLAlchemy or Django gives a database."""
    if dialect not in _FAMILIES:
        raise ConfigurationError(
            f"{dialect!r} is not a database an outbox can live in.", hint=f"Known: {', '.join(_FAMILIES)}."
        )
    return _FAMILIES[dialect]


def quoted_table(dialect: str, table: str) -> str:
    """The table name with the quotes of the dialect."""
    return quoted(table, "`" if family(dialect) == "mysql" else '"')
