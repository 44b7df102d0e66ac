"""The job `upsert`, from the settings."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict
from typing import Any

from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import SliceOutcome
from inorder.settings import Settings
from inorder.stores.postgres.table import PostgresTableStores
from inorder.wiring.databases import postgres_url


def run_upsert(settings: Settings, *, master: str | None, once: bool, stop: threading.Event) -> dict[str, Any]:
    """Runs the job `upsert` on Spark until `stop` is set, or once; returns its totals in records."""
    from inorder.embedded import spark_jars
    from inorder.spark.java_client import java_properties
    from inorder.spark.micro_batch import MicroBatch
    from inorder.spark.session import LOCAL_MASTER, spark_session

    stores = PostgresTableStores(postgres_url(settings, "The pipeline"), upsert_mapping(settings))
    _install(stores)
    totals: Counter[str] = Counter()

    def count(outcome: SliceOutcome) -> None:
        figures = asdict(outcome)
        totals.update({name: figures[name] for name in ("read", "applied", "rejected", "ignored", "replayed")})

    spark = spark_session("inorder upsert", jars=spark_jars(), master=master or LOCAL_MASTER)
    try:
        kafka = java_properties(settings.kafka.properties)
        MicroBatch(spark, stores, stores.mapping, kafka).run(stop, once, count)
    finally:
        spark.stop()
    return dict(totals)


def upsert_mapping(settings: Settings) -> TableMapping:
    """The mapping of the job `upsert`; its pipeline is named after the table it fills."""
    upsert = settings.pipeline.upsert
    return TableMapping(
        pipeline=f"upsert:{upsert.table}",
        topic=upsert.topic,
        table=upsert.table,
        key=upsert.key,
        key_type=upsert.key_type,
        fields=tuple(upsert.fields.items()),
        mode=upsert.mode,
        max_value_bytes=upsert.max_value_bytes,
    )


def _install(stores: PostgresTableStores) -> None:
    store = stores()
    try:
        store.install()
    finally:
        store.close()
