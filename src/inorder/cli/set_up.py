"""inorder up, demo and schema: servers on this machine, the verified demo, and the tables."""

from __future__ import annotations

import os
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, open_app, say, show_json, show_table
from inorder.cli.stopping import stop_on_signals
from inorder.cli.web import import_service
from inorder.model.secrets import mask_url

if TYPE_CHECKING:
    from inorder.demo.path import DemoPath
    from inorder.web.server import WebService

_ALWAYS = ("postgres", "kafka")

# Cassandra and Kafka flush before they stop; the budget covers both.
_BUDGET_SECONDS = 30.0


class ExtraServer(StrEnum):
    """A server that may join PostgreSQL and Kafka."""

    cassandra = "cassandra"
    mariadb = "mariadb"
    redis = "redis"


def up(
    config: ConfigFile = None,
    as_json: AsJson = False,
    extra: Annotated[
        list[ExtraServer] | None, typer.Option("--with", help="Start this server too; may be repeated.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep data, ports and logs here; by default in a new folder of the cache.",
        ),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER=PORT", help="The port of a server, such as postgres=15432; may be repeated."),
    ] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the addresses into a settings file; one that exists stays as it is."),
    ] = None,
    spark_workers: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Also start a standalone master of Spark with so many workers of one core."
        ),
    ] = 0,
    with_web: Annotated[
        bool, typer.Option("--web", help="Also serve the pages of these servers, at `web.listen`.")
    ] = False,
) -> None:
    """Run embedded servers until a signal.

    Starts PostgreSQL and Kafka on this machine, without root, and prints their addresses. Each server has a password
    of its own; the settings file that is printed last has them, and only you can read it. A server that ends is
    started again. With --folder ports and passwords stay the same from one start to the next; ports if they are free.
    """
    from inorder.embedded import Stack

    load(config)
    serve = import_service() if with_web else None
    parts = (*_ALWAYS, *(part.value for part in dict.fromkeys(extra or [])))
    ports = dict(map(_port_of, port or []))
    say(f"Starting {', '.join((*parts, 'spark') if spark_workers else parts)}.")
    with (
        stop_on_signals("the servers", _BUDGET_SECONDS) as stop,
        Stack(parts=parts, folder=folder, ports=ports) as stack,
        ExitStack() as beside,
    ):
        addresses = {name: _without_password(address) for name, address in stack.addresses().items()}
        if spark_workers:
            from inorder.embedded import SparkCluster

            addresses["spark"] = beside.enter_context(SparkCluster(stack.folder / "spark", spark_workers)).url
        if serve is not None:
            settings = load(config, **{name: dict(section) for name, section in stack.settings().items()})
            addresses["web"] = beside.enter_context(serve(settings)).url
        written = stack.write_settings()
        addresses["settings"] = str(written)
        # Before the addresses: who reads them may read the file.
        if write_config is not None:
            _write_config(write_config, written.read_text("utf-8"))
        if as_json:
            show_json(addresses)
        else:
            show_table(addresses.items())
        if without := stack.open_servers():
            say(
                f"Every user of this machine can use {', '.join(without)}: a version without passwords made the data. "
                "Use a new folder for servers with passwords."
            )
        say("Ctrl-C stops them.")
        stack.supervise(stop, say)


def _port_of(text: str) -> tuple[str, int]:
    """A server and its port.

    >>> _port_of("postgres=15432")
    ('postgres', 15432)
    """
    server, _, number = text.partition("=")
    if not number.isdecimal() or not 0 < int(number) <= _LAST_PORT:
        raise typer.BadParameter(f"{text!r} is not like postgres=15432", param_hint="--port")
    return server, int(number)


def _write_config(file: Path, text: str) -> None:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        say(f"{file} exists and was not changed.")
        return
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)
    say(f"The addresses are in {file}.")


def _without_password(address: str) -> str:
    """An address as it may be printed.

    >>> _without_password("postgresql+psycopg://postgres:s3@127.0.0.1:15432/postgres"), _without_password("127.0.0.1:1")
    ('postgresql+psycopg://postgres:***@127.0.0.1:15432/postgres', '127.0.0.1:1')
    """
    return mask_url(address) if "://" in address else address


_LAST_PORT = 65_535


# inorder demo: the whole path on one machine, verified.


def demo(
    events: Annotated[int, typer.Option(min=1, metavar="N", help="How many updates to write.")] = 20_000,
    as_json: AsJson = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Repeat a run with its seed; by default a new one."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Afterwards keep everything running and serve its pages, until a signal.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Run the whole path here and verify it.

    Events go through embedded PostgreSQL, Kafka and Spark into a table; exit 5 on loss, disorder or
    duplicates. Of the settings only [log] is used: the demo brings its own servers.
    """
    from inorder.demo import run

    load(config)
    kept = partial(_keep_demo, import_service()) if keep else None
    raise typer.Exit(run(events=events, as_json=as_json, seed=seed, keep=kept))


def _keep_demo(serve: type[WebService], path: DemoPath) -> None:
    with stop_on_signals("the pages", _BUDGET_SECONDS) as stop, serve(path.settings) as site:
        say(f"Everything still runs. The pages are at {site.url}; the settings are in {path.config}.")
        say(f"Try: inorder top --config {path.config}")
        say("Ctrl-C stops it.")
        stop.wait()


# inorder schema: creates or prints the tables that inorder needs.

schema_app = typer.Typer(help="Create or print the tables.", no_args_is_help=True, rich_markup_mode=None)


class SchemaLayout(StrEnum):
    """The tables of this version: the outbox in its layouts, the pipeline's, those of projections, the journal's."""

    native = "native"
    goharvest = "goharvest"
    debezium = "debezium"
    deimos = "deimos"
    trendyol = "trendyol"
    table = "table"
    projection = "projection"
    journal = "journal"


class SqlDialect(StrEnum):
    """The databases whose DDL can be printed."""

    postgresql = "postgresql"
    mysql = "mysql"
    sqlite = "sqlite"
    cassandra = "cassandra"


_LAYOUTS_HELP = (
    "native, goharvest, debezium, deimos, trendyol: the outbox and the relay's tables. table: the pipeline's "
    "tables. projection: those of projections, beside yours. journal: those of journal.store."
)
WhichLayout = Annotated[SchemaLayout, typer.Option("--layout", help=_LAYOUTS_HELP)]


@schema_app.command()
def install(config: ConfigFile = None, layout: WhichLayout = SchemaLayout.native, as_json: AsJson = False) -> None:
    """Create the tables where they are missing; running it again changes nothing."""
    with open_app(config) as app:
        made = app.install_schema(layout.value)
    if as_json:
        show_json({"layout": layout.value, "made": [change.statement for change in made]})
    else:
        say("\n".join(map(str, made)) or "All tables exist already.")


@schema_app.command()
def plan(
    config: ConfigFile = None,
    layout: Annotated[
        SchemaLayout | None,
        typer.Option("--layout", help="Only this one; by default those that the settings name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what install would change, and change nothing: tables to create, columns and indexes to add."""
    with open_app(config) as app:
        layouts = app.configured_layouts() if layout is None else [layout.value]
        planned = [(each, change) for each in layouts for change in app.plan_schema(each)]
    if as_json:
        show_json([{"layout": each, **change.as_dict()} for each, change in planned])
        return
    for each in layouts:
        statements = [change.statement for of, change in planned if of == each]
        if statements:
            typer.echo(f"-- inorder schema install --layout {each}")
            typer.echo("".join(f"{statement};\n" for statement in statements))
    if not planned:
        say(f"Nothing to do: the tables of {', '.join(layouts) or 'no layout'} are up to date.")


@schema_app.command()
def sql(
    config: ConfigFile = None,
    layout: Annotated[
        SchemaLayout | None,
        typer.Option(
            "--layout",
            help=f"{_LAYOUTS_HELP} [default: native; with --roles, those that the settings name]",
        ),
    ] = None,
    dialect: Annotated[
        SqlDialect | None,
        typer.Option(help="The database the DDL is for. [default: postgresql; with journal, that of journal.store]"),
    ] = None,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Instead of the DDL, the GRANTs for publisher, relay, pipeline, reader and operator."
        ),
    ] = False,
    role_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="What the names of the roles begin with.")
    ] = "inorder_",
    as_json: AsJson = False,
) -> None:
    """Print the DDL, for your own migrations, or the rights of each role; connects to nothing."""
    app = open_app(config)
    if roles:
        dialect = dialect or SqlDialect.postgresql
        text = app.roles_sql(layout and layout.value, dialect.value, role_prefix)
    else:
        layout = layout or SchemaLayout.native
        if dialect is None and layout is not SchemaLayout.journal:
            dialect = SqlDialect.postgresql
        text = app.schema_sql(layout.value, dialect and dialect.value)
    if as_json:
        show_json({"layout": layout and layout.value, "dialect": dialect and dialect.value, "sql": text})
    else:
        typer.echo(text)
