"""The upsert job on real Kafka, Spark and PostgreSQL, by both engines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import Connection
from pyspark.sql import SparkSession

from inorder.model.errors import GuaranteeError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.conftest import Eventually
from tests.fakes.table_store import message
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, Heard, new_engine, upsert_work
from tests.selection import few

PARTITIONS = 4
PHYSICAL = "SELECT id, ctid::text, xmin::text, updated_at, data FROM messages ORDER BY id"


class Pipeline:
    """A pipeline on its own topic and database, with what it told."""

    def __init__(self, engine: str, spark: SparkSession, bootstrap: str, url: str, topic: str) -> None:
        mapping = TableMapping("test", topic, "messages")
        self.topic = topic
        self.bootstrap = bootstrap
        self.heard = Heard()
        work = upsert_work(SqlTableStores(url, mapping), mapping)
        self._engine = new_engine(engine, spark, work, bootstrap)
        self._stop = threading.Event()

    def run_once(self) -> dict[str, int]:
        """Runs to the end of the topic and returns the sums of its outcomes."""
        self.heard.outcomes.clear()
        self._engine.run(threading.Event(), once=True, listener=self.heard)
        figures = ("read", "applied", "identical", "ignored", "rejected", "replayed")
        return {name: self.heard.sum(name) for name in figures}

    def start(self, threads: ThreadPoolExecutor) -> Future[None]:
        return threads.submit(self._engine.run, self._stop, listener=self.heard)

    def stop(self) -> None:
        self._stop.set()

    def applied(self) -> int:
        return self.heard.sum("applied")

    def produce(self, values: dict[int, list[bytes]]) -> None:
        """Sends values to the partition of their id, in order."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for identity, sent in values.items():
            for value in sent:
                producer.produce(self.topic, value, str(identity), identity % PARTITIONS)
        assert producer.flush(30) == 0


@pytest.fixture(params=few(ENGINES, "micro-batch"))
def pipeline(
    request: pytest.FixtureRequest, spark: SparkSession, kafka_bootstrap: str, postgres_url: str, unique: str
) -> Pipeline:
    return Pipeline(request.param, spark, kafka_bootstrap, postgres_url, unique)


@pytest.fixture
def threads(pipeline: Pipeline) -> Iterator[ThreadPoolExecutor]:
    """Threads that a failing test does not leave behind."""
    with ThreadPoolExecutor(2) as pool:
        yield pool
        pipeline.stop()


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "message.max.bytes": 5_000_000,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(30)
    return producer


GARBAGE: list[tuple[bytes | None, bytes | None, str]] = [
    (None, b"not json at all \x00\xff", "not-json"),
    (None, None, "null-value"),
    (b"5", b'{"id":5,"enabled":"yes"}', "wrong-type"),
    (b"5", b'{"id":"5","data":"x"}', "wrong-type"),
    (b"5", b'{"id":5,"data":12}', "wrong-type"),
    (b"6", b'{"id":5,"data":"x"}', "key-mismatch"),
    (b"5", b'{"data":"x"}', "missing-key"),
    (b"5", b"[]", "not-an-object"),
    (b"5", b'{"id":5,"data":"a\\u0000"}', "nul-character"),
    (b"5", orjson.dumps({"id": 5, "data": "x" * 2_000_000}), "too-large"),
]


def send_rounds(producer: Producer, topic: str, rounds: int) -> dict[int, dict[str, object]]:
    """Commits rounds of good and bad records, aborts one in three; returns a fold of the good ones."""
    model: dict[int, dict[str, object]] = {}
    for number in range(rounds):
        is_aborted = number % 3 == 2
        producer.begin_transaction()
        for identity in range(40):
            fields: dict[str, object] = {"data": f"{number}-{identity}"}
            if (identity + number) % 4 == 0:
                fields = {"enabled": number % 2 == 0}
            producer.produce(topic, message(identity, **fields), str(identity), identity % PARTITIONS)
            if not is_aborted:
                model.setdefault(identity, {}).update(fields)
        key, value, _ = GARBAGE[number % len(GARBAGE)]
        producer.produce(topic, value, key, 1)
        producer.produce(topic, message(1), "1", 1)
        producer.flush(30)
        producer.abort_transaction(30) if is_aborted else producer.commit_transaction(30)
    return model


def stored(direct: Connection[Any]) -> dict[int, dict[str, object]]:
    rows = direct.execute("SELECT id, enabled, data FROM messages").fetchall()
    named = ((key, {"enabled": enabled, "data": data}) for key, enabled, data in rows)
    return {key: {name: value for name, value in row.items() if value is not None} for key, row in named}


def test_garbage_lands_in_the_dead_letters_and_everything_else_in_the_table_exactly_once(
    pipeline: Pipeline, direct: Connection[Any], create_topic: Callable[..., None]
) -> None:
    create_topic(pipeline.topic, PARTITIONS, max_message_bytes="5000000")
    producer = transactional(pipeline.bootstrap, pipeline.topic)
    rounds = 3 * len(GARBAGE)
    model = send_rounds(producer, pipeline.topic, rounds)
    committed = rounds - rounds // 3
    figures = pipeline.run_once()

    assert stored(direct) == model
    assert figures["read"] == committed * 42
    assert (figures["rejected"], figures["ignored"], figures["replayed"]) == (committed, committed, 0)
    letters = direct.execute(
        'SELECT "partition", key, value, code FROM inorder_dead_letter ORDER BY "offset"'
    ).fetchall()
    sent = [GARBAGE[number % len(GARBAGE)] for number in range(rounds) if number % 3 != 2]
    assert letters == [(1, key, value, code) for key, value, code in sent]
    assert {code for *_, code in letters} == {code for *_, code in GARBAGE}

    before = direct.execute(PHYSICAL).fetchall()
    assert pipeline.run_once()["read"] == 0
    assert direct.execute(PHYSICAL).fetchall() == before, "a run with a fresh checkpoint must change no row"

    direct.execute("UPDATE inorder_pointer SET next_offset = 0")
    assert pipeline.run_once()["applied"] == 0
    assert direct.execute(PHYSICAL).fetchall() == before, "a replay from the beginning must change no row"

    producer.begin_transaction()
    producer.produce(pipeline.topic, message(7, enabled=False, data="later"), "7", 7 % PARTITIONS)
    producer.commit_transaction(30)
    assert pipeline.run_once()["applied"] == 1
    assert stored(direct) == model | {7: {"enabled": False, "data": "later"}}


@pytest.mark.full
def test_a_topic_that_does_not_exist_yet_is_waited_for_and_a_stop_is_quick(
    pipeline: Pipeline,
    direct: Connection[Any],
    create_topic: Callable[..., None],
    eventually: Eventually,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        running = pipeline.start(threads)
        missing = f"Topic {pipeline.topic!r} does not exist yet"
        eventually(lambda: any(missing in vars(each).get("error", "") for each in caplog.records), SPARK_WAIT)
    create_topic(pipeline.topic, PARTITIONS)
    pipeline.produce({identity: [message(identity, data="a")] for identity in range(20)})
    eventually(lambda: pipeline.applied() == 20, SPARK_WAIT)
    pipeline.produce({identity: [message(identity, enabled=True)] for identity in range(20)})
    eventually(lambda: pipeline.applied() == 40, SPARK_WAIT)
    pipeline.stop()
    running.result(timeout=SPARK_WAIT)
    assert stored(direct) == {identity: {"enabled": True, "data": "a"} for identity in range(20)}


def test_database_sessions_that_end_under_load_cost_a_restart_and_nothing_else(
    pipeline: Pipeline,
    direct: Connection[Any],
    create_topic: Callable[..., None],
    eventually: Eventually,
    threads: ThreadPoolExecutor,
) -> None:
    create_topic(pipeline.topic, PARTITIONS)
    running = pipeline.start(threads)
    for number in range(3):
        pipeline.produce({key: [message(key, data=f"{number}-{turn}") for turn in range(50)] for key in range(40)})
        eventually(lambda: pipeline.applied() > 0, SPARK_WAIT)
        direct.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'inorder pipeline' AND datname = current_database()"
        )

    def counted() -> object:
        return direct.execute("SELECT sum(records_applied + records_identical) FROM inorder_pointer").fetchone()

    eventually(lambda: counted() == (6000,), SPARK_WAIT)
    pipeline.stop()
    running.result(timeout=SPARK_WAIT)
    assert stored(direct) == {key: {"data": "2-49"} for key in range(40)}


@pytest.mark.full
def test_a_pointer_moved_back_under_a_running_pipeline_stops_it_with_our_error(
    pipeline: Pipeline,
    direct: Connection[Any],
    create_topic: Callable[..., None],
    eventually: Eventually,
    threads: ThreadPoolExecutor,
) -> None:
    create_topic(pipeline.topic, 1)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    producer.produce(pipeline.topic, message(1, data="a"), "1", 0)
    assert producer.flush(30) == 0
    running = pipeline.start(threads)
    eventually(lambda: pipeline.applied() == 1, SPARK_WAIT)
    direct.execute("UPDATE inorder_pointer SET next_offset = 0")
    producer.produce(pipeline.topic, message(1, data="b"), "1", 0)
    assert producer.flush(30) == 0
    with pytest.raises(GuaranteeError, match=r"\[0\] in pipeline 'test' is at 0, but 1 was committed"):
        running.result(timeout=SPARK_WAIT)
    assert stored(direct) == {1: {"data": "a"}}


def test_a_record_that_breaks_a_constraint_of_the_users_is_set_aside_and_the_rest_is_applied(
    pipeline: Pipeline, direct: Connection[Any], create_topic: Callable[..., None]
) -> None:
    create_topic(pipeline.topic, PARTITIONS)
    direct.execute("ALTER TABLE messages ADD CONSTRAINT short CHECK (length(data) < 3)")
    pipeline.produce({1: [message(1, data="ok"), message(1, data="long")], 2: [message(2, data="ok")]})
    figures = pipeline.run_once()
    assert (figures["applied"], figures["rejected"]) == (2, 1)
    assert stored(direct) == {1: {"data": "ok"}, 2: {"data": "ok"}}
    letters = direct.execute('SELECT "partition", "offset", detail FROM inorder_dead_letter').fetchall()
    assert [(partition, offset) for partition, offset, _ in letters] == [(1, 1)]
    assert "short" in letters[0][2]


def test_records_deleted_by_retention_before_they_were_applied_are_loud(
    pipeline: Pipeline, direct: Connection[Any], create_topic: Callable[..., None]
) -> None:
    create_topic(pipeline.topic, PARTITIONS)
    pipeline.produce({4: [message(4, data="a")]})
    pipeline.run_once()
    pipeline.produce({4: [message(4, data="b"), message(4, data="c")]})
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    for future in admin.delete_records([TopicPartition(pipeline.topic, 0, 2)]).values():
        future.result(timeout=30)
    with pytest.raises(GuaranteeError, match=r"\[0\] is at 1, but the partition begins at 2"):
        pipeline.run_once()
    assert stored(direct) == {4: {"data": "a"}}
