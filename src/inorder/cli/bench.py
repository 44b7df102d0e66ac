"""inorder bench: the relay, the pipeline or the journal against a peer, on embedded servers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load

app = typer.Typer(help="Measure against a peer, on this machine.", no_args_is_help=True, rich_markup_mode=None)

WARM_SECONDS = 5.0

Rows = Annotated[int, typer.Option(min=1, metavar="N", help="How many records the backlog has.")]
Rate = Annotated[int, typer.Option(min=1, metavar="N", help="How many live records a second.")]
Seconds = Annotated[
    float, typer.Option(min=0.1, metavar="S", help="How long live records are counted, after some seconds of warm-up.")
]
Repeats = Annotated[int, typer.Option(min=1, metavar="N", help="How many trials each side has; they take turns.")]
Strategy = Annotated[str, typer.Option(metavar="NAME", help="What `relay.strategy` is set to.")]


class RelayPeer(StrEnum):
    """What the relay is measured against."""

    librdkafka = "librdkafka"
    goharvest = "goharvest"
    debezium = "debezium"


class Delivery(StrEnum):
    exactly_once = "exactly-once"
    at_least_once = "at-least-once"


class Case(StrEnum):
    drain = "drain"
    latency = "latency"


DeliveryOption = Annotated[Delivery, typer.Option(help="What `relay.delivery` is set to.")]


class PipelinePeer(StrEnum):
    """What the pipeline is measured against."""

    raw_copy = "raw-copy"
    debezium_jdbc = "debezium-jdbc"


class JournalStores(StrEnum):
    """What journals are replicated to."""

    postgres = "postgres"
    cassandra = "cassandra"
    both = "both"


class JournalEngines(StrEnum):
    """The engines that replicate them."""

    resident = "resident"
    micro_batch = "micro-batch"
    both = "both"


@app.command()
def relay(
    peer: Annotated[
        RelayPeer,
        typer.Option(
            help="goharvest is built with Go and debezium downloaded on first use; librdkafka is a producer that has "
            "every record in memory."
        ),
    ] = RelayPeer.librdkafka,
    rows: Rows = 200_000,
    keys: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="How many keys; may be repeated. [default: 1000, 10, 1]"),
    ] = None,
    headers: Annotated[
        list[int] | None,
        typer.Option(min=0, max=1, metavar="N", help="How many headers; may be repeated. [default: 0, 1]"),
    ] = None,
    case: Annotated[
        list[Case] | None,
        typer.Option(metavar="drain|latency", help="What to measure; may be repeated. [default: both]"),
    ] = None,
    rate: Rate = 500,
    seconds: Seconds = 30.0,
    repeats: Repeats = 3,
    delivery: DeliveryOption = Delivery.exactly_once,
    strategy: Strategy = "drain",
    layout: Annotated[str, typer.Option(metavar="NAME", help="What `relay.layout` is set to.")] = "native",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure the rate of a drain and the latency of live rows, against a peer that takes turns with the relay.

    Brings its own servers; of the settings only [log] is used. Reads every topic back: exit 5 on loss, disorder or
    duplicates of the relay.
    """
    from inorder.bench.load import Schedule
    from inorder.bench.options import HEADERS, KEYS, WITHOUT_HEADERS, RelayOptions, RelaySetting
    from inorder.bench.run import run_relay

    load(config)
    cases, setting = set(case or Case), RelaySetting.of(strategy, delivery.value, layout)
    usual = (0,) if setting.layout in WITHOUT_HEADERS else HEADERS
    options = RelayOptions(
        rows,
        Schedule(rate, seconds, WARM_SECONDS),
        keys=tuple(keys or KEYS) if Case.drain in cases else (),
        headers=tuple(headers if headers is not None else usual),
        repeats=repeats,
        live=Case.latency in cases,
        setting=setting,
    )
    raise typer.Exit(run_relay(peer.value, options, as_json))


@app.command(name="wake-up")
def wake_up(
    writers: Annotated[int, typer.Option(min=1, metavar="N", help="How many processes publish.")] = 16,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="How long they publish in each trial.")] = 10.0,
    repeats: Repeats = 3,
    delivery: DeliveryOption = Delivery.exactly_once,
    strategy: Strategy = "drain",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure what waking the relay costs writers: through Outbox, and by the same INSERT without that part.

    Brings its own servers and a running relay; of the settings only [log] is used. Reads the topic back: exit 5 on
    loss, disorder or duplicates.
    """
    from inorder.bench.options import RelaySetting
    from inorder.bench.run import run_wake_up
    from inorder.bench.wake_up import WakeUpOptions

    load(config)
    setting = RelaySetting(delivery.value, strategy)
    raise typer.Exit(run_wake_up(WakeUpOptions(writers, seconds, repeats, setting), as_json))


@app.command()
def pipeline(
    rows: Rows = 400_000,
    keys: Annotated[int, typer.Option(min=1, metavar="N", help="How many keys the backlog has.")] = 10_000,
    rate: Rate = 500,
    seconds: Seconds = 10.0,
    peer: Annotated[
        PipelinePeer,
        typer.Option(help="raw-copy is the least code, without guarantees; debezium-jdbc is downloaded on first use."),
    ] = PipelinePeer.raw_copy,
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="What `pipeline.engine` is set to.")] = "micro-batch",
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="Measure a curve instead: on a standalone Spark with so many workers of one core."
        ),
    ] = None,
    partitions: Annotated[
        str, typer.Option(metavar="N,N", help="With --workers: how many partitions the topics have.")
    ] = "1,2,4,8,16",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure how fast the job upsert catches up, cold and warm, and the latency of live messages.

    There are two backlogs of so many records: one before the start, one that appears at once while the job runs. With
    --workers there is one backlog for each number of workers and partitions, and no peer.

    Brings its own servers; of the settings only [log] is used. Compares the table with what was sent: exit 5 on loss,
    disorder or duplicates.
    """
    from inorder.bench.load import Schedule
    from inorder.bench.options import PipelineOptions
    from inorder.bench.run import run_pipeline

    load(config)
    if workers is not None:
        from inorder.bench.run import run_scaling
        from inorder.bench.scaling import ScalingOptions

        points = ScalingOptions(
            _numbers(workers, "--workers"), _numbers(partitions, "--partitions"), rows, keys, engine
        )
        raise typer.Exit(run_scaling(points, as_json))
    options = PipelineOptions(rows, Schedule(rate, seconds, WARM_SECONDS), engine=engine, keys=keys)
    raise typer.Exit(run_pipeline(peer.value, options, as_json))


@app.command()
def journal(
    events: Annotated[
        int | None,
        typer.Option(
            min=1_000,
            metavar="N",
            help="How many events are appended in batches in each turn, or make the backlog that is replicated. "
            "[default: 200000; with --replicate 400000, for Cassandra 100000]",
        ),
    ] = None,
    replicate: Annotated[
        bool, typer.Option("--replicate", help="Measure the job replicate instead: a backlog, then live appends.")
    ] = False,
    store: Annotated[JournalStores, typer.Option(help="With --replicate: where to.")] = JournalStores.postgres,
    engine: Annotated[JournalEngines, typer.Option(help="With --replicate: by which engine.")] = JournalEngines.both,
    writers: Annotated[int, typer.Option(min=1, metavar="N", help="How many append one event at a time.")] = 16,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="How long they do so in each turn.")] = 5.0,
    foreign: Annotated[
        int, typer.Option(min=0, metavar="N", help="Among how many records of others a journal is looked for in Kafka.")
    ] = 100_000,
    reads: Annotated[int, typer.Option(min=1, metavar="N", help="How often a journal is recovered.")] = 31,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often appends are measured, after a turn that is not counted.")
    ] = 3,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure appends to journals and how soon one is read back, from the store and from Kafka alone.

    With --replicate: how fast the job replicate fills a store, and how soon an append is in it.

    Brings its own servers; of the settings only [log] is used. Where the Python package eventsourcing is installed it
    is measured on the same PostgreSQL. Reads the events back: exit 5 on loss, duplicates or disorder.
    """
    from inorder.bench.journal import EVENTS, JournalOptions
    from inorder.bench.journal_replicate import ReplicateOptions
    from inorder.bench.run import run_journal, run_replicate

    load(config)
    if replicate:
        wanted = ReplicateOptions.of(store.value, engine.value, events, seconds)
        raise typer.Exit(run_replicate(wanted, as_json))
    options = JournalOptions(
        events=events or EVENTS,
        writers=writers,
        seconds=seconds,
        foreign=foreign,
        reads=reads,
        repeats=repeats,
    )
    raise typer.Exit(run_journal(options, as_json))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers of an option such as `1,2,4`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 1,2,4", param_hint=option)
    return tuple(map(int, parts))
