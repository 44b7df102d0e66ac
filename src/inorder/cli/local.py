"""inorder up and inorder demo: embedded servers on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, say, show_json, show_table
from inorder.cli.stopping import stop_on_signals

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
        typer.Option(metavar="FOLDER", help="Keep data and logs here; by default in a new folder of the cache."),
    ] = None,
) -> None:
    """Run embedded servers until a signal.

    Starts PostgreSQL and Kafka on this machine, without root, and prints their addresses.
    """
    from inorder.embedded import Stack

    load(config)
    parts = (*_ALWAYS, *(part.value for part in dict.fromkeys(extra or [])))
    say(f"Starting {', '.join(parts)}.")
    with stop_on_signals("the servers", _BUDGET_SECONDS) as stop, Stack(parts=parts, folder=folder) as stack:
        addresses = stack.addresses()
        if as_json:
            show_json(addresses)
        else:
            show_table(addresses.items())
        say("Ctrl-C stops them.")
        stop.wait()


# inorder demo: the whole path on one machine, verified.


def demo(
    events: Annotated[int, typer.Option(min=1, metavar="N", help="How many updates to write.")] = 20_000,
    as_json: AsJson = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Repeat a run with its seed; by default a new one."),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Run the whole path here and verify it.

    Events go through embedded PostgreSQL, Kafka and Spark into a table; exit 5 on loss, disorder or
    duplicates. Of the settings only [log] is used: the demo brings its own servers.
    """
    from inorder.demo import run

    load(config)
    raise typer.Exit(run(events=events, as_json=as_json, seed=seed))
