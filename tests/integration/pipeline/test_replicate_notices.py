"""Both engines tell readers how far the store is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from pyspark.sql import SparkSession

import inorder
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.stores.kafka_notices import OffsetAnnouncers
from inorder.journal.stores.opening import JournalReplicas, open_journal_store
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.noticing import all_notices, newest
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, new_engine
from tests.selection import few


@pytest.mark.parametrize("kind", few(ENGINES))
def test_an_engine_announces_where_the_store_ends(
    kind: str,
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    create_topic(unique, 2)
    properties: dict[str, object] = {"bootstrap.servers": kafka_bootstrap}
    settings = inorder.Settings.load(None, kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": postgres_url})
    with inorder.Journals(settings) as journals:
        for number in range(10):
            journals.journal(Key(f"id{number}", unique)).append([Event(1), Event(2)])
    with closing(open_journal_store(postgres_url)) as store:
        store.install()
        name = store.identity()
        assert name is not None
        announcers = OffsetAnnouncers.of(properties, f"notices.{unique}", name)
        work = ReplicateWork((unique,), JournalReplicas(postgres_url), announcers=announcers)
        new_engine(kind, spark, work, kafka_bootstrap).run(threading.Event(), once=True)
        ends = {partition: store.offset(unique, partition) for partition in range(2)}
        assert sum((end or 0) + 1 for end in ends.values()) == 10
        eventually(lambda: newest(all_notices(properties, f"notices.{unique}")) == ends, SPARK_WAIT)
