"""inorder status, key, doctor, config and observe: read everything, change nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, open_app, say, show_json, show_table

if TYPE_CHECKING:
    from inorder.operate.key_trace import KeyFinding, KeyTrace, TableHop
    from inorder.settings import Settings


def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the state of relay, topics, pipeline and journals, after a verdict in one line.

    A part that cannot be read prints why; then the exit code is 4 where something is unreachable, else 3.
    """
    from inorder.operate.status import verdict

    with open_app(config) as app:
        parts = app.status()
    if as_json:
        show_json(parts)
    else:
        said = verdict(parts)
        typer.secho(said, bold=True, fg=typer.colors.GREEN if said == "ok" else typer.colors.RED)
        show_table(
            (part if at == 0 else "", name, value)
            for part, fields in parts.items()
            for at, (name, value) in enumerate(fields.items())
        )
    raise typer.Exit(max((fields.get("exit_code", 0) for fields in parts.values()), default=0))


# inorder key: where a key is.

key_app = typer.Typer(help="Find out where a key is.", no_args_is_help=True, rich_markup_mode=None)

UNREACHABLE = 4


@key_app.callback()
def key() -> None:
    """Find out where a key is."""


@key_app.command()
def follow(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A record key, as text or as hex:DIGITS; of journals the id.")
    ],
    config: ConfigFile = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only this topic.")] = None,
    everywhere: Annotated[
        bool, typer.Option("--all-partitions", help="Look beyond the partition that the key belongs to.")
    ] = False,
    before: Annotated[
        str | None,
        typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="With --json: the events before this record."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Follow one key through outbox, topic, table and journal, and print where it is held up.

    It reads the key's partition from its beginning, and changes nothing. With --json it prints every event
    in order too, up to 50 of a partition, with its times and what became of it at each hop; repeats and gaps
    are marked. Exit 4 where a hop could not be read.
    """
    from inorder.operate.fields import trace_fields
    from inorder.operate.key_lookup import Before
    from inorder.operate.key_trace import findings, summary

    with open_app(config) as app:
        place = None if before is None else Before.parse(before)
        trace = app.trace_key(key, topic=topic, everywhere=everywhere, before=place)
    found = findings(trace)
    if as_json:
        show_json(trace_fields(trace))
    else:
        _show(trace, found)
    say(summary(trace, found))
    raise typer.Exit(UNREACHABLE if trace.unseen else 0)


def _show(trace: KeyTrace, found: list[KeyFinding]) -> None:
    show_table([("hop", "where", "what"), *_lines(trace)])
    for each in found:
        say(f"{each.hop}: {each.sentence}\n  {each.command}")


def _lines(trace: KeyTrace) -> list[tuple[str, str, str]]:
    lines = []
    if trace.outbox is not None:
        hop = trace.outbox
        lines.append(("outbox", hop.table, f"{hop.rows} waiting, {len(hop.exceeded)} exceeded"))
    for topic in trace.topics:
        last = "none" if topic.last is None else f"newest at {topic.last.offset}"
        lines.append(("topic", f"{topic.topic}[{topic.partition}]", f"{topic.records} records, {last}"))
    lines += [("table", table.table, _row(table)) for table in trace.tables]
    for journal in trace.journals:
        state = "parked" if journal.parked else f"seq_nr {journal.seq_nr}, replicated up to {journal.replicated}"
        lines.append(("journal", journal.topic, state))
    return lines


def _row(table: TableHop) -> str:
    if table.version is None:
        return "no row"
    shown = "deleted" if table.is_deleted else "a row"
    letters = f", {len(table.letters)} dead letters" if table.letters else ""
    return f"{shown} of version {table.version[0]}:{table.version[1]}{letters}"


# inorder doctor: whether machine, database and Kafka are as inorder needs them.


def doctor(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check machine, database and Kafka.

    Checks Java, disk, reachability, rights, tables, indexes and topic settings, changes nothing, and prints
    what to do. Exit 4 where something is unreachable, 3 where something is wrong.
    """
    from inorder.operate.doctor import exit_code

    with open_app(config) as app:
        checks = app.examine()
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        show_table((check.status, check.name, check.detail) for check in checks)
        for check in checks:
            if check.hint and check.status != "ok":
                say(f"{check.name}: {check.hint}")
    raise typer.Exit(exit_code(checks))


# inorder observe: what Prometheus and Grafana are given.

observe_app = typer.Typer(help="Print alert rules and a dashboard.", no_args_is_help=True, rich_markup_mode=None)


@observe_app.command()
def rules() -> None:
    """Print the alert rules, a file for `rule_files` of Prometheus."""
    from inorder.observe import views

    typer.echo(views.rules(), nl=False)


@observe_app.command()
def dashboard() -> None:
    """Print the dashboard, a file that Grafana imports."""
    from inorder.observe import views

    typer.echo(views.dashboard(), nl=False)


# inorder config: the settings, and whether they are valid.

config_app = typer.Typer(help="Show and check the settings.", no_args_is_help=True, rich_markup_mode=None)


@config_app.command()
def show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print every setting, secrets masked, with the source it came from."""
    rows = load(config).describe()
    if as_json:
        show_json([asdict(row) for row in rows])
    else:
        lines = ((row.key, row.value, _source(row.source, row.place)) for row in rows)
        show_table([("setting", "value", "source"), *lines])


@config_app.command()
def check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check the settings without connecting to a server."""
    from inorder.kafka.admin import check_properties
    from inorder.kafka.java_client import java_properties

    settings = load(config)
    check_properties(settings.kafka.properties)
    if _reads_with_java(settings):
        java_properties(settings.kafka.properties, settings.pipeline.kafka_java.properties)
    if as_json:
        show_json({"ok": True, "settings": len(settings.describe())})
    else:
        say("The settings are valid. `inorder doctor` checks the servers.")


def _reads_with_java(settings: Settings) -> bool:
    """Whether Spark's own client is used, as far as the settings say; a relay alone has no use for it."""
    named = [row.key for row in settings.describe() if row.source != "default"]
    is_set_up = any(key.startswith(("pipeline.", "journal.")) for key in named)
    return is_set_up and settings.pipeline.engine == "micro-batch"


def _source(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source
