"""inorder pipeline: carries Kafka records into tables, on Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    Reason,
    open_app,
    say,
    serving,
    show_fields,
    show_json,
    show_records,
    show_table,
)
from inorder.cli.stopping import in_background, stop_on_signals
from inorder.model.errors import GuaranteeError, InorderError

if TYPE_CHECKING:
    from rich.console import Console

    from inorder.app import App
    from inorder.engines.job_status import Lag
    from inorder.engines.progress import RunTotals
    from inorder.engines.survey import Backlog
    from inorder.journal.audit.findings import AuditFinding
    from inorder.journal.jobs import Expired
    from inorder.model.partitioning import Place

app = typer.Typer(help="Carry Kafka records into tables, on Spark.", no_args_is_help=True, rich_markup_mode=None)


SPARK_ENDS_SECONDS = 10.0
"""What Spark may take to stop, once the relays have."""


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
    jobs: Annotated[
        str,
        typer.Argument(
            metavar="JOB[,JOB...]",
            autocompletion=lambda: list(Job),
            help=(
                "upsert: the newest state of each key, in a table. replicate: journals, in their store. "
                "expire: purge journals whose time is over, every hour. "
                "migrate: copy later generations of --topic into one Kafka topic. "
                "audit: compare journals in their store with their topics, once. "
                "relay: carry outbox rows to Kafka, with relays as tasks of Spark. "
                "Several of relay, upsert, replicate and expire run in one application: relay,upsert."
            ),
        ),
    ],
    config: ConfigFile = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="ENGINE", help="micro-batch or resident; overrides pipeline.engine."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The Spark master; overrides pipeline.master, which is a local one by default."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Apply what the topics hold now, then end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="expire: print what would be purged, and do nothing.")
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="audit: only journals of this topic. migrate: the topic to copy."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="migrate: where to; by default the topic's first generation."),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="audit: only this journal of --topic.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a job on Spark until a signal, or several jobs in one application.

    SIGTERM or Ctrl-C lets each finish the current slice, within 10 s. Prints totals at the end. Serves health and
    metrics at `health.listen`. Of several jobs, one that fails is started again alone; the exit code is that of the
    gravest error of a job that had ended, or was waiting for its next start.
    """
    from inorder.engines.progress import CompositeListener, RunTotals

    given: dict[str, Any] = {name: value for name, value in (("engine", engine), ("master", master)) if value}
    app = open_app(config, **({"pipeline": given} if given else {}))
    several = _jobs(jobs)
    for each in several:
        _require_options(each, {"--dry-run": dry_run, "--topic": topic, "--id": id, "--to": to})
    if len(several) > 1:
        _application(app, several, once, as_json)
        return
    job = several[0]
    if job is Job.audit:
        _audit(app, topic, id, as_json)
        return
    if job is Job.expire:
        _expire(app, once or dry_run, dry_run, as_json)
        return
    if job is Job.relay:
        _relay(app, once, as_json)
        return
    progress = RunTotals()
    run_job, topics, behind, backlog = _migration(app, topic or "", to) if job is Job.migrate else _parts(job, app)
    service = app.job_service(job.value, backlog)
    say(f"The job {job.value} reads {topics} with the engine {app.settings.pipeline.engine}.")
    listener = CompositeListener(progress, service.listener)
    display = show_progress(progress, lambda: sum(behind().values()))
    # What the app has opened is closed within the time that a signal leaves: a server may be away.
    with stop_on_signals(f"the job {job.value}") as stop, app, serving(service), display:
        totals = in_background(lambda: run_job(once=once, stop=stop, listener=listener))
    show_fields(dict(totals), as_json)


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the outcomes of the records, how many offsets wait in each partition, and how old the last slice is."""
    with open_app(config) as app:
        fields = app.pipeline_status()
    partitions, waiting = ([], []) if as_json else (fields.pop("partitions"), fields.pop("waiting"))
    show_fields(fields, as_json)
    show_records(partitions)
    for each in waiting:
        typer.echo("{topic}[{partition}] waits since {since}: {reason}".format(**each))


OfTable = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Only this table.")]


@app.command()
def plan(config: ConfigFile = None, table: OfTable = None, as_json: AsJson = False) -> None:
    """Print fields of messages that the mapping does not name, and the columns that could be added for them.

    The type of each is the narrowest that fits the last messages. Nothing is changed.
    """
    with open_app(config) as app:
        found = [each.as_dict() for each in app.plan_columns(table)]
    show_records(found, as_json, "Every field of the messages is in the mapping.")


@app.command()
def apply(
    field: Annotated[
        list[str], typer.Option("--field", metavar="NAME=TYPE", help="A field and its type, as in the mapping.")
    ],
    config: ConfigFile = None,
    table: OfTable = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be added, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add nullable columns for chosen fields to the table. The job stores them once `fields` names them.

    Add the fields to `fields` in the settings afterwards, and start the job again. Rows keep a null until a newer
    message of their key comes.
    """
    chosen = dict(each.partition("=")[::2] for each in field)
    if "" in chosen.values():
        raise typer.BadParameter("give each field a type, as in --field colour=text")
    with open_app(config) as app:
        if dry_run:
            columns = app.apply_columns(chosen, table, dry_run=True)
        else:
            columns = app.changes.apply_columns(chosen, table, reason).result
        added = [each.as_dict() for each in columns]
    show_records(added, as_json, "The table has these columns already.")
    if added and not as_json:
        names = ", ".join(f'{each["field"]} = "{each["type"]}"' for each in added)
        say(f"Add to `fields` of table {added[0]['table']}: {names}. Then start the job again.")


@app.command()
def reset(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, as the settings of the table name it.")],
    config: ConfigFile = None,
    from_first: Annotated[
        bool,
        typer.Option(
            "--from-first",
            help="Apply all that the topic holds again, as newer than all before. Of a topic that was switched: all "
            "that the generation holds which the job reads now.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Accept that a topic was re-created, renamed or truncated, or that retention deleted records too early.

    The job upsert stops a partition whose pointer does not fit its topic any more. Stop the job, run this, and start it
    again. A re-created, renamed or truncated topic begins the next generation: all its records are newer than those
    that were applied. After retention the pointer moves to the first record that is left.
    """
    with open_app(config) as app:
        changed = [each.as_dict() for each in app.reset_pipeline(topic, from_first=from_first, dry_run=dry_run)]
    show_records(changed, as_json, "Every pointer fits its topic; nothing was changed.")


@app.command()
def clean(
    config: ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove tombstones of deleted rows that no record and no dead letter can be older than any more.

    A run notes where the topics end. Once retention has removed everything before that, a later run removes the
    tombstones from before it. Run it daily, or set `pipeline.clean_seconds`.
    """
    with open_app(config) as app:
        found = [each.as_dict() for each in app.clean_tombstones(dry_run=dry_run)]
    show_records([each if as_json else each | {"held_by": each["held_by"][:3]} for each in found], as_json)


@app.command()
def optimize(
    config: ConfigFile = None,
    hours: Annotated[
        int, typer.Option("--hours", min=168, help="Keep files of versions that are younger than this.")
    ] = 168,
    as_json: AsJson = False,
) -> None:
    """Join the small files of Delta tables, and remove files that no recent version needs.

    Every batch of the job upsert adds files to a Delta table. Run this daily, or set `pipeline.optimize_seconds`. A job
    that runs meanwhile may have to write a batch a second time.
    """
    with open_app(config) as app:
        done = in_background(lambda: app.optimize_tables(hours))
    show_records(done, as_json)


@app.command()
def package(
    folder: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to write.")] = Path("dist"),
    jars: Annotated[bool, typer.Option("--jars", help="Also copy the jars, for clusters without a registry.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write what a cluster needs: an archive of this Python environment, and the file for spark-submit.

    The archive has inorder and what it requires, without Spark; nodes need the same minor version of Python. Prints the
    jars of the Kafka connector, which the engine micro-batch needs, and of Delta Lake, with their checksums.
    """
    from inorder.spark.packaging import package

    made = package(folder, with_jars=jars)
    if as_json:
        show_json(made.as_dict())
        return
    fields = made.as_dict()
    show_fields({name: fields[name] for name in ("archive", "job", "python")} | {"packages": len(made.packages)}, False)
    show_table([["jar", "file", "sha256"], *([jar.coordinates, jar.file_name, jar.sha256] for jar in made.jars)])
    say(f"Submit with: {made.submit_line()}")


def _jobs(text: str) -> list[Job]:
    """The jobs of an argument such as `relay,upsert`."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in list(Job)]:
        raise typer.BadParameter(f"there is no job {unknown[0]!r}; there are {', '.join(Job)}")
    return [Job(name) for name in names]


def _application(app: App, jobs: list[Job], once: bool, as_json: bool) -> None:
    from inorder.engines.progress import CompositeListener, RunTotals
    from inorder.spark.application import check_jobs, run_application

    names = [job.value for job in jobs]
    check_jobs(names)
    slices = [job for job in jobs if job in (Job.upsert, Job.replicate)]
    lags = {job.value: _parts(job, app)[3] if job in slices else dict for job in jobs}
    services, progress = app.job_services(lags), RunTotals()
    listeners = {job: CompositeListener(progress, figures) for job, figures in services.listeners.items()}
    say(f"The jobs {', '.join(names)} run in one application. Ctrl-C stops them.")
    display = show_progress(progress, lambda: sum(sum(_parts(job, app)[2]().values()) for job in slices))
    budget = (app.settings.relay.stop_seconds if Job.relay in jobs else 0.0) + SPARK_ENDS_SECONDS
    run = partial(run_application, app.settings, names, once=once, listeners=listeners, observer=services)
    with stop_on_signals("the jobs", budget) as stop, app, serving(services), display:
        finished = in_background(lambda: run(stop=stop))
    if as_json:
        show_json(dict(finished.totals))
    else:
        show_table([job, name, number] for job, totals in finished.totals.items() for name, number in totals.items())
    finished.raise_gravest()


def _expire(app: App, once: bool, dry_run: bool, as_json: bool) -> None:
    """Runs without Spark."""
    service = app.job_service(Job.expire.value, dict)
    run = partial(app.run_expire, once=once, dry_run=dry_run, on_expired=_say_expired, service=service)
    with stop_on_signals("the job expire") as stop, app, serving(service):
        totals = in_background(lambda: run(stop=stop))
    show_fields(dict(totals), as_json)


def _relay(app: App, once: bool, as_json: bool) -> None:
    relay = app.settings.relay
    say(f"The relay of group {relay.group} runs on Spark. Ctrl-C stops it.")
    with stop_on_signals("the job relay", relay.stop_seconds + SPARK_ENDS_SECONDS) as stop, app:
        totals = in_background(lambda: app.run_relay(once=once, stop=stop))
    show_fields(totals, as_json)


def _say_expired(expired: Expired) -> None:
    say(str(expired))


_OPTIONS = {
    "--dry-run": {Job.expire},
    "--topic": {Job.audit, Job.migrate},
    "--id": {Job.audit},
    "--to": {Job.migrate},
}
"""The jobs that have them."""


def _require_options(job: Job, given: dict[str, object]) -> None:
    """Refuses options that the job does not have, and requires those that it needs."""
    for name, value in given.items():
        if value and job not in _OPTIONS[name]:
            raise typer.BadParameter(f"the job {job.value} has no {name}")
    if job is Job.migrate and not given["--topic"]:
        raise typer.BadParameter("the job migrate needs --topic NAME, as publishers call it")


Waiting = Callable[[], dict["Place", int]]
Parts = tuple[Callable[..., dict[str, Any]], str, Waiting, Callable[[], "Lag | Backlog"]]
"""What runs a job, what it reads, how many records of each partition wait for it, and what else its metrics show."""


def _migration(app: App, topic: str, to: str | None) -> Parts:
    reads = f"later generations of topic {topic}"
    behind = lambda: app.migration(topic, to).behind()  # noqa: E731
    return partial(app.run_migrate, topic, to=to), reads, behind, behind


def _parts(job: Job, app: App) -> Parts:
    if job is Job.replicate:
        topics = "all topics that begin with " + " or ".join(app.settings.journal.topic_prefixes)
        lag = lambda: {(row.topic, row.partition): row.behind for row in app.journal_admin.lag()}  # noqa: E731
        return app.run_replicate, topics, lag, app.journal_backlog
    topics = ", ".join(f"topic {topic}" for topic in app.upsert_work.topics)
    return app.run_upsert, topics, app.pipeline_lag, app.pipeline_backlog


# The progress of a running job in one line on stderr: records, rate and lag; in the log where stderr is no terminal.

logger = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 0.5
LOG_SECONDS = 10.0
BEHIND_SECONDS = 2.0
_WINDOW = 6
"""Looks that a rate is taken over."""

Behind = Callable[[], int]


@contextmanager
def show_progress(progress: RunTotals, behind: Behind, console: Console | None = None) -> Iterator[None]:
    """Shows a run for as long as the block lasts; `behind` reads the lag from the cluster and may fail."""
    over = threading.Event()
    from rich.console import Console

    display = _Display(progress, behind, console or Console(stderr=True))
    thread = threading.Thread(target=display.run, args=(over,), name="pipeline-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Display:
    def __init__(self, progress: RunTotals, behind: Behind, console: Console) -> None:
        self._progress = progress
        self._behind = behind
        self._console = console
        self._looks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=_WINDOW)
        self._waiting: tuple[float, int | None] = (0.0, None)

    def run(self, over: threading.Event) -> None:
        """Draws on a terminal, logs elsewhere."""
        if not self._console.is_terminal:
            last: dict[str, Any] = {}
            while not over.wait(LOG_SECONDS):
                found = {**self._progress.as_dict(), "behind": self._ask()}
                # An idle job has nothing to say; times change all the same.
                steady = {
                    name: value for name, value in found.items() if name not in ("phase_seconds", "last_slice_age")
                }
                if steady != last:
                    logger.info("pipeline.progress", extra=found)
                last = steady
            return
        from rich.live import Live
        from rich.text import Text

        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            while not over.wait(LOOK_SECONDS):
                live.update(Text(self._line()))

    def _line(self) -> str:
        totals = self._progress.totals()
        self._looks.append((time.monotonic(), totals["read"]))
        (began, first), (now, last) = self._looks[0], self._looks[-1]
        rate = (last - first) / (now - began) if now > began else 0.0
        if now - self._waiting[0] > BEHIND_SECONDS:
            self._waiting = (now, self._ask())
        waiting = "?" if self._waiting[1] is None else f"{self._waiting[1]:,}"
        return line_of(totals, rate, waiting)

    def _ask(self) -> int | None:
        try:
            return self._behind()
        except InorderError as error:
            logger.debug("pipeline.behind_unknown", extra={"error": str(error)})
            return None


def line_of(totals: dict[str, int], rate: float, behind: str) -> str:
    """The line on a terminal."""
    outcomes = ", ".join(f"{count:,} {name}" for name, count in totals.items() if name != "read" and count)
    return f"{totals['read']:,} records ({outcomes or 'none yet'}), {rate:,.0f}/s, {behind} behind"


# The job `audit`: prints each finding as it comes, then totals; a difference is exit code 5.


def _audit(app: App, topic: str | None, id: str | None, as_json: bool) -> None:
    """Raises `GuaranteeError` where topics and store differ."""

    def show(finding: AuditFinding) -> None:
        if as_json:
            show_json(finding.as_dict())
        else:
            typer.echo(audit_line(finding))

    say("The job audit compares the store with its topics.")
    with stop_on_signals("the job audit") as stop, app:
        totals = in_background(lambda: app.run_audit(stop=stop, on_finding=show, topic=topic, id=id))
    show_fields(totals, as_json)
    if count := totals["differences"]:
        raise GuaranteeError(
            f"The store differs from its topics in {count:,} {'place' if count == 1 else 'places'}.",
            hint="The topics decide. docs/operations.md has the steps that repair a store.",
        )


def audit_line(finding: AuditFinding) -> str:
    """A finding in a line: what, where, what the topic has and what the store has."""
    where = finding.topic if finding.id is None else f"{finding.topic}:{finding.id}"
    parts = [f"{finding.kind}: {where}"]
    if finding.seq_nr is not None:
        parts.append(f"seq_nr {finding.seq_nr}")
    if finding.partition is not None:
        parts.append(f"at {finding.partition}:{'?' if finding.offset is None else finding.offset}")
    parts += [f"topic: {finding.in_topic}"] if finding.in_topic else []
    parts += [f"store: {finding.in_store}"] if finding.in_store else []
    return "; ".join(parts)
