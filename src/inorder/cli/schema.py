"""inorder schema: the tables inorder needs, made or printed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, say, show_json

app = typer.Typer(help="Make or print the tables.", no_args_is_help=True, rich_markup_mode=None)


class Layout(StrEnum):
    """The tables of this version: the outbox in its layouts, the pipeline's target, and the journal's store."""

    native = "native"
    goharvest = "goharvest"
    debezium = "debezium"
    deimos = "deimos"
    trendyol = "trendyol"
    table = "table"
    journal = "journal"


class Dialect(StrEnum):
    """The databases whose DDL can be printed."""

    postgresql = "postgresql"
    mysql = "mysql"
    sqlite = "sqlite"
    cassandra = "cassandra"


WhichLayout = Annotated[
    Layout,
    typer.Option(
        "--layout",
        help=(
            "native, goharvest, debezium, deimos, trendyol: the outbox and the relay's tables. table: the pipeline's "
            "tables. journal: those of journal.store."
        ),
    ),
]


@app.command()
def install(config: ConfigFile = None, layout: WhichLayout = Layout.native, as_json: AsJson = False) -> None:
    """Make the tables where they are missing; running it again changes nothing."""
    from inorder.operate.schema import install_schema

    made = install_schema(load(config), layout.value)
    if as_json:
        show_json({"layout": layout.value, "made": made})
    else:
        say("\n".join(made) if made else "Everything is there already.")


@app.command()
def sql(
    config: ConfigFile = None,
    layout: WhichLayout = Layout.native,
    dialect: Annotated[
        Dialect | None,
        typer.Option(help="The database the DDL is for. [default: postgresql; with journal, that of journal.store]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the DDL, for your own migrations; no connection is made."""
    from inorder.operate.schema import schema_sql

    if dialect is None and layout is not Layout.journal:
        dialect = Dialect.postgresql
    text = schema_sql(load(config), layout.value, dialect and dialect.value)
    if as_json:
        show_json({"layout": layout.value, "dialect": dialect and dialect.value, "sql": text})
    else:
        typer.echo(text)
