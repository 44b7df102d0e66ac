"""The tables that inorder needs, made or printed."""

from __future__ import annotations

from contextlib import closing

from inorder.outbox.layouts import family
from inorder.outbox.layouts import install_statements as outbox_statements
from inorder.settings import Settings
from inorder.stores.exceeded import install_statements as exceeded_statements
from inorder.stores.lease import install_statements as lease_statements
from inorder.stores.membership import install_statements as membership_statements
from inorder.stores.opening import dialect_of, open_database
from inorder.stores.registry import install_statements as registry_statements
from inorder.wiring.databases import require_postgres
from inorder.wiring.upsert import upsert_mapping


def install_schema(settings: Settings, layout: str) -> list[str]:
    """Makes the tables of a layout where they are missing; returns the statements that were run."""
    url = settings.database.require_url()
    made = _statements(settings, layout, dialect_of(url))
    with closing(open_database(url, "inorder schema")) as database:
        database.install(made)
    return made


def schema_sql(settings: Settings, layout: str, dialect: str) -> str:
    """The DDL of a layout as text, for migrations of your own."""
    return "\n".join(f"{statement.strip()};\n" for statement in _statements(settings, layout, dialect))


def _statements(settings: Settings, layout: str, dialect: str) -> list[str]:
    if layout == "table":
        require_postgres(dialect, "The pipeline's tables")
        from inorder.stores.postgres.table import install_statements as table_statements

        return list(table_statements(upsert_mapping(settings)))
    spoken = family(dialect)
    return [
        *outbox_statements(layout, dialect, settings.relay.table),
        *lease_statements(spoken),
        *membership_statements(spoken),
        *exceeded_statements(spoken),
        *registry_statements(spoken),
    ]
