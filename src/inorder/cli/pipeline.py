"""inorder pipeline: carries records of Kafka into tables, on Spark."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields, show_table
from inorder.cli.stopping import in_background, stop_on_signals

if TYPE_CHECKING:
    from inorder.settings import Settings

app = typer.Typer(help="Carry Kafka records into tables, on Spark.", no_args_is_help=True, rich_markup_mode=None)


class Job(StrEnum):
    """The jobs of this version."""

    upsert = "upsert"
    replicate = "replicate"
    expire = "expire"


@app.callback()
def pipeline() -> None:
    """Carry Kafka records into tables, on Spark."""


@app.command()
def run(
    job: Annotated[
        Job,
        typer.Argument(
            help=(
                "upsert: the newest state of each key, in a table. replicate: journals, in their store. "
                "expire: purge journals whose time is over, every hour."
            )
        ),
    ],
    config: ConfigFile = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="ENGINE", help="micro-batch or resident; goes over pipeline.engine."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The Spark master; goes over pipeline.master, a local one otherwise."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Apply what is there now, then end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="expire: print what would go, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job on Spark until a signal.

    SIGTERM or Ctrl-C lets it finish the slice in hand, within 10 s. Prints totals at the end.
    """
    from inorder.cli.pipeline_display import shown
    from inorder.pipeline.progress import Progress

    given: dict[str, Any] = {name: value for name, value in (("engine", engine), ("master", master)) if value}
    settings = load(config, **({"pipeline": given} if given else {}))
    if dry_run and job is not Job.expire:
        raise typer.BadParameter(f"the job {job.value} has no --dry-run")
    if job is Job.expire:
        _expire(settings, once or dry_run, dry_run, as_json)
        return
    progress = Progress()
    run_job, topics, behind = _parts(job, settings)
    say(f"The job {job.value} reads {topics} with the engine {settings.pipeline.engine}.")
    with stop_on_signals(f"the job {job.value}") as stop, shown(progress, behind):
        totals = in_background(lambda: run_job(settings, once=once, stop=stop, listener=progress))
    show_fields(dict(totals), as_json)


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print what became of the records, how many offsets wait in each partition, and how old the last slice is."""
    from inorder.wiring import pipeline_status

    fields = pipeline_status(load(config))
    partitions = [] if as_json else fields.pop("partitions")
    show_fields(fields, as_json)
    if partitions:
        show_table([list(partitions[0]), *(each.values() for each in partitions)])


def _expire(settings: Settings, once: bool, dry_run: bool, as_json: bool) -> None:
    """This one runs without Spark."""
    from inorder.wiring import run_expire

    with stop_on_signals("the job expire") as stop:
        totals = in_background(
            lambda: run_expire(settings, once=once, stop=stop, dry_run=dry_run, tell=lambda each: say(str(each)))
        )
    show_fields(dict(totals), as_json)


def _parts(job: Job, settings: Settings) -> tuple[Callable[..., dict[str, Any]], str, Callable[[], int]]:
    """What runs a job, what it reads, and how many records wait for it."""
    if job is Job.replicate:
        from inorder.wiring import journal_lag, run_replicate

        topics = "all topics that begin with " + " or ".join(settings.journal.topic_prefixes)
        return run_replicate, topics, lambda: sum(row.behind for row in journal_lag(settings))
    from inorder.wiring import pipeline_status, run_upsert, upsert_work

    topics = ", ".join(f"topic {topic}" for topic in upsert_work(settings).topics)
    return run_upsert, topics, lambda: int(pipeline_status(settings)["behind"])
