"""inorder pipeline: carries records of Kafka into tables, on Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields
from inorder.cli.stopping import in_background, stop_on_signals

app = typer.Typer(help="Carry Kafka records into tables, on Spark.", no_args_is_help=True, rich_markup_mode=None)


class Job(StrEnum):
    """The jobs of this version."""

    upsert = "upsert"


@app.callback()
def pipeline() -> None:
    """Carry Kafka records into tables, on Spark."""


@app.command()
def run(
    job: Annotated[Job, typer.Argument(help="upsert: the newest state of each key, in a table.")],
    config: ConfigFile = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="ENGINE", help="How Spark runs the job; goes over pipeline.engine."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The Spark master; a local one otherwise."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Apply what is there now, then end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job on Spark until a signal.

    SIGTERM or Ctrl-C lets it finish the slice in hand, within 10 s. Prints totals at the end.
    """
    from inorder.wiring import run_upsert

    overrides: dict[str, dict[str, Any]] = {"pipeline": {"engine": engine}} if engine else {}
    settings = load(config, **overrides)
    say(f"The job {job.value} reads topic {settings.pipeline.upsert.topic}.")
    with stop_on_signals(f"the job {job.value}") as stop:
        totals = in_background(lambda: run_upsert(settings, master=master, once=once, stop=stop))
    show_fields(dict(totals), as_json)
