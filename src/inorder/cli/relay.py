"""inorder relay and outbox: carry rows of the outbox to Kafka, and publish kept rows again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    Everything,
    OfKey,
    OfTopic,
    Reason,
    load,
    open_app,
    say,
    show_fields,
    show_json,
    show_records,
)
from inorder.cli.stopping import stop_on_signals
from inorder.model.errors import InorderError

if TYPE_CHECKING:
    from inorder.app import App

app = typer.Typer(help="Carry outbox rows to Kafka.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def run(config: ConfigFile = None) -> None:
    """Run the relay until a signal.

    SIGTERM or Ctrl-C lets it finish the current batch, within `relay.stop_seconds` (10 s), and prints what is
    left. A second signal ends it at once; nothing is lost by that.

    Reloads the file when it changes, unless `relay.reload_on_change` is false. Serves health and metrics at
    `health.listen`.
    """
    from inorder import gc_tuning
    from inorder.settings.sources import FILE_DEFAULT

    with open_app(config) as app:
        gc_tuning.relax()
        relay, service = app.settings.relay, app.relay_service(config or Path(FILE_DEFAULT), lambda: load(config))

        def left() -> str:
            return f"{service.in_flight} rows were in flight; they stay in the outbox until they are known to be sent."

        with stop_on_signals("the relay", relay.stop_seconds, left) as stop, service:
            say(f"The relay of group {relay.group} runs. Ctrl-C stops it.")
            if service.address:
                say("Serves health and metrics at http://{}:{}.".format(*service.address))
            service.run(stop)
        _say_what_is_left(app, service.published)


def _say_what_is_left(app: App, published: int) -> None:
    try:
        waiting = f"{app.relay_admin.status()['waiting']} rows wait in the outbox"
    except InorderError as error:
        waiting = f"how many rows wait is not known: {error.message}"
    say(f"Stopped. {published} records were published by this instance; {waiting}.")


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how much waits in the outbox and which instances own it."""
    with open_app(config) as app:
        fields = app.relay_admin.status()
    topics = [] if as_json else fields.pop("topics", [])
    show_fields(fields, as_json)
    show_records(topics)


@app.command()
def reshard(
    config: ConfigFile = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many shards; by default `relay.shards`.")
    ] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="The database was restored from a backup: do not purge by the old markers."),
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Change shards, group or strategy of the table's relay to those of the settings.

    It stops running instances: start them again with the new settings. It may be interrupted and run again;
    meanwhile nothing is published, and nothing is lost, duplicated or reordered.
    """
    with open_app(config) as app:
        found = app.changes.reshard(reason, shards=shards, restored=restored).result
    fields = {"table": found.outbox, "group": found.group, "strategy": found.strategy, "shards": found.shards}
    show_fields({**fields, "epoch": found.epoch}, as_json)
    if app.settings.relay.shards != found.shards:
        say(f"Now set relay.shards = {found.shards} in the settings of every instance.")


# inorder outbox: rows that were published and kept.

outbox_app = typer.Typer(help="Publish kept rows again.", no_args_is_help=True, rich_markup_mode=None)


@outbox_app.command()
def replay(
    config: ConfigFile = None,
    key: OfKey = None,
    topic: OfTopic = None,
    since: Annotated[datetime | None, typer.Option(help="Only records published then or later; UTC.")] = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the records, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put copies of published rows into the outbox, in their old order, behind all that waits.

    Rows are kept where `relay.retention_days` is set. All of them or none are put back.
    """
    if key is None and topic is None and since is None and not everything:
        raise typer.BadParameter("filter with --key, --topic or --since, or give --all")
    at = None if since is None else since.replace(tzinfo=UTC)
    encoded = None if key is None else key.encode()
    with open_app(config) as app:
        if dry_run:
            count = app.replay_outbox(key=encoded, topic=topic, since=at, dry_run=True)
        else:
            count = app.changes.replay_outbox(reason, key=encoded, topic=topic, since=at).result
    if as_json:
        show_json({"rows": count, "dry_run": dry_run})
    else:
        say(f"{count} rows to replay; nothing was done." if dry_run else f"{count} rows wait to be published again.")
