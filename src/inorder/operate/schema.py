"""The tables that inorder needs, as DDL."""

from __future__ import annotations

from inorder.database.database import statements_of
from inorder.database.sql import family
from inorder.journal.stores.opening import journal_statements
from inorder.journal.stores.projection_store import projection_tables
from inorder.operate.actions import action_tables
from inorder.outbox.layouts import install_statements as outbox_statements
from inorder.pipeline.job import table_mappings
from inorder.pipeline.stores.table import table_sql
from inorder.relay.stores.exceeded import exceeded_tables as exceeded_statements
from inorder.relay.stores.registry import registry_tables as registry_statements
from inorder.relay.stores.sql_lease import lease_tables as lease_statements
from inorder.relay.stores.sql_lease import membership_tables as membership_statements
from inorder.settings import Settings
from inorder.settings.relay import DEIMOS_TABLE, TRENDYOL_TABLE
from inorder.topics.stores.generations import generation_tables as topic_statements

JOURNAL = "journal"
"""The layout whose tables are in the journal's store."""
_USUAL_TABLES = {"deimos": DEIMOS_TABLE, "trendyol": TRENDYOL_TABLE}


def schema_sql(settings: Settings, layout: str, dialect: str | None = None) -> str:
    """The DDL of a layout as text, for your own migrations; by default PostgreSQL's, or the journal store's."""
    return "\n".join(f"{statement.strip()};\n" for statement in layout_statements(settings, layout, dialect))


def layout_statements(settings: Settings, layout: str, dialect: str | None = None) -> list[str]:
    """The DDL of a layout, that of the journal's store too."""
    if layout == JOURNAL:
        return journal_statements(_journal_url(settings, dialect))
    return schema_statements(settings, layout, dialect or "postgresql")


def configured_layouts(settings: Settings) -> list[str]:
    """The layouts that the settings name: the outbox, the tables of the job `upsert`, and the journal's store."""
    found = [str(settings.relay.layout)] if settings.database.url is not None else []
    if found and {"upsert", "tables"} & settings.pipeline.model_fields_set:
        found.append("table")
    if "journal" in settings.model_fields_set:
        found.append(JOURNAL)
    return found


def schema_statements(settings: Settings, layout: str, dialect: str) -> list[str]:
    """The DDL of the outbox in a layout with the relay's tables, of the pipeline's or of projections' tables.

    Each statement may be run again.
    """
    spoken = family(dialect)
    if layout == "projection":
        return projection_tables(spoken)
    if layout == "table":
        made: list[str] = []
        for mapping in table_mappings(settings):
            # Tables that several mappings share are created once. Within one mapping a statement may come twice: MySQL
            # runs each ALTER that it has chosen with the same words.
            known = frozenset(made)
            made += [each for each in table_sql(spoken, mapping).install() if each not in known]
        return [*made, *statements_of("inorder.pipeline", spoken, "dead_letters.sql").starting_with("install")]
    return [
        *outbox_statements(layout, dialect, outbox_table(settings, layout), settings.relay.polling.side_tables),
        *lease_statements(spoken),
        *membership_statements(spoken),
        *exceeded_statements(spoken),
        *registry_statements(spoken),
        *topic_statements(spoken),
        *action_tables(spoken),
    ]


def _journal_url(settings: Settings, dialect: str | None) -> str:
    """The store's URL, whose keyspace the DDL names; another database's where `dialect` names one."""
    found = settings.journal.store or settings.database.url
    url = found.get_secret_value() if found else "postgresql://"
    return settings.journal.cassandra.added_to(url if dialect is None or url.startswith(dialect) else f"{dialect}://")


def outbox_table(settings: Settings, layout: str) -> str:
    """The outbox table; where none is set, the one that relays of the layout look for."""
    relay = settings.relay
    return relay.table if "table" in relay.model_fields_set else _USUAL_TABLES.get(layout, relay.table)
