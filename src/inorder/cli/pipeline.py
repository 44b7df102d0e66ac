"""inorder pipeline: carries records of Kafka into tables, on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.audit import run_and_show
from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields, show_table
from inorder.cli.stopping import in_background, stop_on_signals

if TYPE_CHECKING:
    from inorder.journal.replication.expiring import Expired
    from inorder.ports.partition_reader import Place
    from inorder.settings import Settings
    from inorder.wiring.job_measuring import JobService

app = typer.Typer(help="Carry Kafka records into tables, on Spark.", no_args_is_help=True, rich_markup_mode=None)


SPARK_ENDS_SECONDS = 10.0
"""What Spark may take for its own end, once the relays are done."""


class Job(StrEnum):
    """The jobs of this version."""

    upsert = "upsert"
    replicate = "replicate"
    expire = "expire"
    migrate = "migrate"
    audit = "audit"
    relay = "relay"


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
                "expire: purge journals whose time is over, every hour. "
                "migrate: copy later generations of --topic into one Kafka topic. "
                "audit: compare journals in their store with their topics, once. "
                "relay: carry outbox rows to Kafka, with relays as tasks of Spark."
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
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="audit: only journals of this topic. migrate: the topic to copy."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="migrate: where to; the topic's first generation if left out."),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="audit: only this journal of --topic.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a job on Spark until a signal.

    SIGTERM or Ctrl-C lets it finish the slice in hand, within 10 s. Prints totals at the end. `health.listen` says
    where health and metrics are told.
    """
    from inorder.cli.pipeline_display import shown
    from inorder.pipeline.progress import Progress, Several
    from inorder.wiring.job_measuring import JobService

    given: dict[str, Any] = {name: value for name, value in (("engine", engine), ("master", master)) if value}
    settings = load(config, **({"pipeline": given} if given else {}))
    _require_options(job, {"--dry-run": dry_run, "--topic": topic, "--id": id, "--to": to})
    if job is Job.audit:
        run_and_show(settings, topic, id, as_json)
        return
    if job is Job.expire:
        _expire(settings, once or dry_run, dry_run, as_json)
        return
    if job is Job.relay:
        _relay(settings, once, as_json)
        return
    progress = Progress()
    run_job, topics, behind = _migration(settings, topic, to) if job is Job.migrate else _parts(job, settings)
    service = JobService(settings, job.value, behind)
    say(f"The job {job.value} reads {topics} with the engine {settings.pipeline.engine}.")
    listener = Several(progress, service.listener)
    display = shown(progress, lambda: sum(behind().values()))
    with stop_on_signals(f"the job {job.value}") as stop, _told(service), display:
        totals = in_background(lambda: run_job(settings, once=once, stop=stop, listener=listener))
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
    from inorder.wiring.job_measuring import JobService

    service = JobService(settings, Job.expire.value, dict)
    run = partial(run_expire, settings, once=once, dry_run=dry_run, tell=_say_expired, service=service)
    with stop_on_signals("the job expire") as stop, _told(service):
        totals = in_background(lambda: run(stop=stop))
    show_fields(dict(totals), as_json)


def _relay(settings: Settings, once: bool, as_json: bool) -> None:
    from inorder.wiring import run_relay

    say(f"The relay of group {settings.relay.group} runs on Spark. Ctrl-C stops it.")
    with stop_on_signals("the job relay", settings.relay.stop_seconds + SPARK_ENDS_SECONDS) as stop:
        totals = in_background(lambda: run_relay(settings, once=once, stop=stop))
    show_fields(totals, as_json)


def _say_expired(expired: Expired) -> None:
    say(str(expired))


@contextmanager
def _told(service: JobService) -> Iterator[None]:
    with service:
        if service.address:
            say("Health and metrics are told at http://{}:{}.".format(*service.address))
        yield


_OPTIONS = {
    "--dry-run": {Job.expire},
    "--topic": {Job.audit, Job.migrate},
    "--id": {Job.audit},
    "--to": {Job.migrate},
}
"""The jobs that have them."""


def _require_options(job: Job, given: dict[str, object]) -> None:
    """Refuses options that the job does not have, and the lack of one that it needs."""
    for name, value in given.items():
        if value and job not in _OPTIONS[name]:
            raise typer.BadParameter(f"the job {job.value} has no {name}")
    if job is Job.migrate and not given["--topic"]:
        raise typer.BadParameter("the job migrate needs --topic NAME, as publishers call it")


Parts = tuple[Callable[..., dict[str, Any]], str, Callable[[], dict["Place", int]]]
"""What runs a job, what it reads, and how many records of each partition wait for it."""


def _migration(settings: Settings, topic: str | None, to: str | None) -> Parts:
    from inorder.wiring import copies_behind, run_migrate

    name = topic or ""
    words = f"later generations of topic {name}"
    return partial(run_migrate, topic=name, to=to), words, lambda: copies_behind(settings, name, to)


def _parts(job: Job, settings: Settings) -> Parts:
    if job is Job.replicate:
        from inorder.wiring import journal_lag, run_replicate

        topics = "all topics that begin with " + " or ".join(settings.journal.topic_prefixes)
        return run_replicate, topics, lambda: {(row.topic, row.partition): row.behind for row in journal_lag(settings)}
    from inorder.wiring import pipeline_status, run_upsert, upsert_work

    topics = ", ".join(f"topic {topic}" for topic in upsert_work(settings).topics)
    return run_upsert, topics, lambda: _waiting(pipeline_status(settings)["partitions"])


def _waiting(partitions: list[dict[str, Any]]) -> dict[Place, int]:
    return {(each["topic"], each["partition"]): each["behind"] for each in partitions if each["behind"] is not None}
