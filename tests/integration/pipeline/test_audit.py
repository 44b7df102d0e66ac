"""The audit on Spark: what it reads, brings together and looks at again, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from psycopg import Connection
from pyspark.sql import SparkSession

import inorder
from inorder.app import App
from inorder.journal.audit.findings import AuditFinding, FindingKind
from inorder.journal.stores.opening import open_journal_store
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator
from tests.operating import journal_lag


@pytest.mark.full
def test_an_audit_on_spark_finds_what_differs_and_nothing_else(
    spark: SparkSession,
    kafka_bootstrap: str,
    postgres_url: str,
    direct: Connection[Any],
    unique: str,
    create_topic: Callable[..., None],
    eventually: Eventually,
) -> None:
    create_topic(unique, 3)
    settings = inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        journal={"topic_prefixes": [unique]},
    )
    found: list[AuditFinding] = []

    def audit(id: str | None = None, topic: str = unique, stop: threading.Event | None = None) -> dict[str, Any]:
        found.clear()
        with App(settings) as app:
            return app.audit(found.append, topic=topic, id=id).run_on(spark, stop or threading.Event())

    with closing(open_journal_store(postgres_url)) as store:
        store.install()
    with inorder.Journals(settings) as journals:
        for number in range(20):
            journal = journals.journal(Key(f"id{number}", unique))
            for seq_nr in range(1, 4):
                journal.append([Event(seq_nr, {"n": seq_nr})])
        journals.journal(Key("id0", unique)).purge()
    with Replicator({"bootstrap.servers": kafka_bootstrap}, postgres_url, unique):
        eventually(lambda: sum(row.behind for row in journal_lag(settings)) == 0, 60)

    assert audit() == {"journals": 20, "events": 57, "older": 0, "differences": 0, "notes": 0}
    direct.execute("DELETE FROM journal WHERE id = 'id7' AND seq_nr = 2")
    direct.execute("UPDATE metajournal SET id = 'never', segment = 0 WHERE id = 'id9'")
    assert audit() == {"journals": 21, "events": 54, "older": 0, "differences": 3, "notes": 1}
    assert sorted((each.kind.value, each.id) for each in found) == [
        ("hidden rows", "id9"),
        ("missing event", "id7"),
        ("missing journal", "id9"),
        ("surplus journal", "never"),
    ]
    assert audit("id7")["journals"] == 1
    assert [(each.kind, each.seq_nr) for each in found] == [(FindingKind.missing_event, 2)]

    with pytest.raises(ConfigurationError, match="There is no topic nowhere"):
        audit(topic="nowhere")
    stop = threading.Event()
    stop.set()
    with pytest.raises(TransientError, match="stopped before its end"):
        audit(stop=stop)
