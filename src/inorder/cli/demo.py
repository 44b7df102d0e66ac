"""inorder demo: the whole path on one machine, verified."""

from __future__ import annotations

from typing import Annotated

import typer

from inorder.cli.options import AsJson, ConfigFile, load


def demo(
    events: Annotated[int, typer.Option(min=1, metavar="N", help="How many updates to write.")] = 20_000,
    as_json: AsJson = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Repeat a run with its seed; a fresh one otherwise."),
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
