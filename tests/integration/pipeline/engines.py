"""Both engines, made in the same way, so that one test shows the same guarantee of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from inorder.engines.faults import OnMovedBack
from inorder.engines.micro_batch import MicroBatch
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.resident import Resident
from inorder.engines.running import Engine
from inorder.engines.slice_work import SliceOutcome, SliceWork
from inorder.model.errors import GuaranteeError, InorderError, MassRefusalError
from inorder.model.partitioning import Place
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import TableStores

ENGINES = ("micro-batch", "resident")

SPARK_WAIT = 90.0
"""Seconds; the first query of a session compiles for long on a busy machine."""


@dataclass
class Heard:
    """A listener that keeps everything."""

    outcomes: list[SliceOutcome] = field(default_factory=list)
    phases: set[str] = field(default_factory=set)
    errors: dict[Place, GuaranteeError] = field(default_factory=dict)
    waiting: dict[Place, MassRefusalError] = field(default_factory=dict)

    def applied(self, outcome: SliceOutcome) -> None:
        self.outcomes.append(outcome)

    def spent(self, phases: Mapping[str, float]) -> None:
        self.phases |= set(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        self.errors[place] = error

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not kept."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        self.waiting[place] = error

    def sum(self, figure: str) -> int:
        """The number of records so far."""
        return sum(getattr(outcome, figure) for outcome in self.outcomes)


def upsert_work(stores: TableStores, mapping: TableMapping) -> UpsertWork:
    """One table, installed."""
    store = stores()
    store.install()
    store.close()
    return UpsertWork((TableTarget(mapping, stores),))


def new_engine(
    kind: str,
    spark: SparkSession,
    work: SliceWork,
    bootstrap: str,
    *,
    batch: int = 200_000,
    on_moved_back: OnMovedBack = "stop",
) -> Engine:
    """An engine of a kind; `batch` bounds a micro-batch."""
    servers = {"bootstrap.servers": bootstrap}
    if kind == "resident":
        return Resident(spark, work, KafkaSource(servers), on_moved_back=on_moved_back)
    return MicroBatch(
        spark, work, KafkaSource(servers), servers, max_offsets_per_trigger=batch, on_moved_back=on_moved_back
    )
