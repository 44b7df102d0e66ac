"""inorder bench: the relay or the pipeline against a peer, on embedded servers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from inorder.cli.options import AsJson, ConfigFile, load

app = typer.Typer(help="Measure against a peer, here.", no_args_is_help=True, rich_markup_mode=None)

Rows = Annotated[int, typer.Option(min=1, metavar="N", help="How many records the backlog has.")]
Rate = Annotated[int, typer.Option(min=1, metavar="N", help="How many live records a second.")]
Seconds = Annotated[
    float, typer.Option(min=0.1, metavar="S", help="How long live records are counted, after 2 s of warm-up.")
]


class RelayPeer(StrEnum):
    """Whom the relay is measured against."""

    librdkafka = "librdkafka"


class Delivery(StrEnum):
    """How the relay delivers."""

    exactly_once = "exactly-once"
    at_least_once = "at-least-once"


class PipelinePeer(StrEnum):
    """Whom the pipeline is measured against."""

    raw_copy = "raw-copy"


@app.command()
def relay(
    rows: Rows = 200_000,
    rate: Rate = 500,
    seconds: Seconds = 10.0,
    peer: Annotated[RelayPeer, typer.Option(help="A producer that has every record in memory.")] = RelayPeer.librdkafka,
    delivery: Annotated[Delivery, typer.Option(help="What `relay.delivery` is set to.")] = Delivery.exactly_once,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure how fast an outbox is drained, and the way of a live row.

    Brings its own servers; of the settings only [log] is used. Reads the topic back: exit 5 on loss, disorder or
    duplicates.
    """
    load(config)
    _run("relay", peer.value, rows, rate, seconds, as_json, delivery.value)


@app.command()
def pipeline(
    rows: Rows = 200_000,
    rate: Rate = 500,
    seconds: Seconds = 10.0,
    peer: Annotated[PipelinePeer, typer.Option(help="The least code, without guarantees.")] = PipelinePeer.raw_copy,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Measure how fast the job upsert catches up, and the way of a live message.

    Brings its own servers; of the settings only [log] is used. Compares the table with what was sent: exit 5 on loss,
    disorder or duplicates.
    """
    load(config)
    _run("pipeline", peer.value, rows, rate, seconds, as_json)


def _run(
    bench: str, peer: str, rows: int, rate: int, seconds: float, as_json: bool, delivery: str = "exactly-once"
) -> None:
    from inorder.bench.options import Options
    from inorder.bench.run import run
    from inorder.bench.schedule import Schedule

    raise typer.Exit(run(bench, peer, Options(rows, Schedule(rate, seconds), delivery), as_json))
