"""inorder relay: carries rows of the outbox to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields, show_table
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
    from inorder.garbage import look_for_cycles_less_often
    from inorder.settings.sources import FILE_DEFAULT
    from inorder.wiring.reload import RelayService

    settings = load(config)
    look_for_cycles_less_often()
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
    from inorder.wiring import relay_status

    try:
        waiting = f"{relay_status(settings)['waiting']} rows wait in the outbox"
    except InorderError as error:
        waiting = f"how many rows wait is not known: {error.message}"
    say(f"Stopped. {published} records were published by this instance; {waiting}.")


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how much waits in the outbox and who owns it."""
    from inorder.wiring import relay_status

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
    from inorder.wiring import reshard as change

    settings = load(config)
    wanted = load(config, relay={"shards": shards}) if shards is not None else settings
    found = change(wanted, restored=restored)
    fields = {"table": found.outbox, "group": found.group, "strategy": found.strategy, "shards": found.shards}
    show_fields({**fields, "epoch": found.epoch}, as_json)
    if settings.relay.shards != found.shards:
        say(f"Now set relay.shards = {found.shards} in the settings of every instance.")
