"""inorder schema: creates or prints the tables that inorder needs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, open_app, say, show_json

app = typer.Typer(help="Create or print the tables.", no_args_is_help=True, rich_markup_mode=None)


class SchemaLayout(StrEnum):
    """The tables of this version: the outbox in its layouts, the pipeline's target, and the journal's store."""

    native = "native"
    goharvest = "goharvest"
    debezium = "debezium"
    deimos = "deimos"
    trendyol = "trendyol"
    table = "table"
    journal = "journal"


class SqlDialect(StrEnum):
    """The databases whose DDL can be printed."""

    postgresql = "postgresql"
    mysql = "mysql"
    sqlite = "sqlite"
    cassandra = "cassandra"


WhichLayout = Annotated[
    SchemaLayout,
    typer.Option(
        "--layout",
        help=(
            "native, goharvest, debezium, deimos, trendyol: the outbox and the relay's tables. table: the pipeline's "
            "tables. journal: those of journal.store."
        ),
    ),
]


@app.command()
def install(config: ConfigFile = None, layout: WhichLayout = SchemaLayout.native, as_json: AsJson = False) -> None:
    """Create the tables where they are missing; running it again changes nothing."""
    with open_app(config) as app:
        made = app.install_schema(layout.value)
    if as_json:
        show_json({"layout": layout.value, "made": made})
    else:
        say("\n".join(made) if made else "All tables exist already.")


@app.command()
def sql(
    config: ConfigFile = None,
    layout: WhichLayout = SchemaLayout.native,
    dialect: Annotated[
        SqlDialect | None,
        typer.Option(help="The database the DDL is for. [default: postgresql; with journal, that of journal.store]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the DDL, for your own migrations; connects to nothing."""
    if dialect is None and layout is not SchemaLayout.journal:
        dialect = SqlDialect.postgresql
    text = open_app(config).schema_sql(layout.value, dialect and dialect.value)
    if as_json:
        show_json({"layout": layout.value, "dialect": dialect and dialect.value, "sql": text})
    else:
        typer.echo(text)
