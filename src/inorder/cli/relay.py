"""inorder relay: carries rows of the outbox to Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, say, show_fields, show_json, show_table
from inorder.cli.stopping import stop_on_signals
from inorder.model.errors import InorderError

if TYPE_CHECKING:
    from inorder.settings import Settings

app = typer.Typer(help="Carry outbox rows to Kafka.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def run(config: ConfigFile = None) -> None:
    """Run the relay until a signal.

    SIGTERM or Ctrl-C lets it finish the batch in hand, within `relay.stop_seconds` (10 s), and prints what is
    left. A second one ends it at once; nothing is lost by that.

    Changes of the file are gone on with, unless `relay.reload_on_change` is false. `health.listen` says where health
    and metrics are told.
    """
    from inorder import gc_tuning
    from inorder.relay.reloading import RelayService
    from inorder.settings.sources import FILE_DEFAULT

    settings = load(config)
    gc_tuning.relax()
    service = RelayService(settings, config or Path(FILE_DEFAULT), lambda: load(config))

    def left() -> str:
        return f"{service.in_flight} rows were on their way; they stay in the outbox until they are known to be sent."

    with stop_on_signals("the relay", settings.relay.stop_seconds, left) as stop, service:
        say(f"The relay of group {settings.relay.group} runs. Ctrl-C stops it.")
        if service.address:
            say("Health and metrics are told at http://{}:{}.".format(*service.address))
        service.run(stop)
    _say_what_is_left(settings, service.published)


def _say_what_is_left(settings: Settings, published: int) -> None:
    from inorder.relay.status import relay_status

    try:
        waiting = f"{relay_status(settings)['waiting']} rows wait in the outbox"
    except InorderError as error:
        waiting = f"how many rows wait is not known: {error.message}"
    say(f"Stopped. {published} records were published by this instance; {waiting}.")


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how much waits in the outbox and who owns it."""
    from inorder.relay.status import relay_status

    fields = relay_status(load(config))
    topics = [] if as_json else fields.pop("topics", [])
    show_fields(fields, as_json)
    if topics:
        show_table([list(topics[0]), *(each.values() for each in topics)])


@app.command()
def reshard(
    config: ConfigFile = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many shards; else what the settings say.")
    ] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="The database was restored from a backup: do not purge by the old markers."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change shards, group or strategy of the table's relay to what the settings say.

    Running instances are stopped by it: start them again with the new settings. It may be broken off and run
    again; meanwhile nothing is published, and nothing is lost, doubled or reordered.
    """
    from inorder.relay.reshard import reshard as change

    settings = load(config)
    wanted = load(config, relay={"shards": shards}) if shards is not None else settings
    found = change(wanted, restored=restored)
    fields = {"table": found.outbox, "group": found.group, "strategy": found.strategy, "shards": found.shards}
    show_fields({**fields, "epoch": found.epoch}, as_json)
    if settings.relay.shards != found.shards:
        say(f"Now set relay.shards = {found.shards} in the settings of every instance.")


# inorder outbox: rows that were published and kept.

outbox_app = typer.Typer(help="Publish kept rows again.", no_args_is_help=True, rich_markup_mode=None)


@outbox_app.command()
def replay(
    config: ConfigFile = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only rows of this key.")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only rows of this topic.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only rows that were published then or later; UTC.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every row; needed where nothing else is said.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put copies of published rows into the outbox, in their old order, behind all that waits.

    Rows are kept where `relay.retention_days` is set. All of them or none are put back.
    """
    from inorder.operate.outbox import replay_outbox

    if key is None and topic is None and since is None and not everything:
        raise typer.BadParameter("say which with --key, --topic or --since, or say --all")
    at = None if since is None else since.replace(tzinfo=UTC)
    encoded = None if key is None else key.encode()
    count = replay_outbox(load(config), key=encoded, topic=topic, since=at, dry_run=dry_run)
    if as_json:
        show_json({"rows": count, "dry_run": dry_run})
    else:
        say(f"{count} rows to replay; nothing was done." if dry_run else f"{count} rows wait to be published again.")
