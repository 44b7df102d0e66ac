"""The audit as a command: exit 0 where store and topics agree, 5 where they do not, with the place of each."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from sqlalchemy.engine import make_url

from inorder.journal.codec import RecordSender, append_record
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key, RecordMetadata
from inorder.model.message import Limits
from tests.acceptance.cli.conftest import Inorder
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator

pytestmark = [pytest.mark.spark, pytest.mark.full]

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_exit_code_says_whether_the_store_equals_its_topics(
    inorder_command: Inorder,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    topic = f"{unique}-events"
    variables = {"INORDER_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap, "INORDER_DATABASE__URL": postgres_url}
    (tmp_path / "inorder.toml").write_text(f'[journal]\ntopic_prefixes = ["{unique}"]\n')
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, topic, 1)
    events = [Event(1, {"n": 1}), Event(2, {"n": 2})]
    record = append_record(Key("a", topic), events, START, RecordSender("host"), RecordMetadata(), {}, Limits())
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(topic, record.value, "a", headers=list(record.headers))
    assert producer.flush(60) == 0
    with closing(open_journal_store(postgres_url)) as store:
        store.install()
        with Replicator({"bootstrap.servers": kafka_bootstrap}, postgres_url, topic):
            eventually(lambda: store.offset(topic, 0) == 0, 60)

    ran = inorder_command("pipeline", "run", "audit", "--json", "--topic", topic, "--id", "a", **variables)
    assert ran.returncode == 0, ran.stderr
    totals = {"journals": 1, "events": 2, "older": 0, "differences": 0, "notes": 0}
    assert json.loads(ran.stdout) == totals

    conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("DELETE FROM journal WHERE seq_nr = 2")
    ran = inorder_command("pipeline", "run", "audit", **variables)
    assert ran.returncode == 5, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == f"missing event: {topic}:a; seq_nr 2; at 0:0; topic: at 0:0, payload '{{\"n\":2}}'"
    assert lines[1:3] == ["journals     1", "events       2"]
    assert "The store differs from its topics in 1 place." in ran.stderr
