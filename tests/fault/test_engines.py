"""Both engines under the same faults: kills of workers and drivers, rivals, lost answers, outages."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession
from sqlalchemy.engine import make_url

from inorder.embedded import Kafka
from inorder.embedded.stack import Service
from inorder.engines.running import Engine
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import GuaranteeError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import SliceTransaction, TableStore, TableStores
from inorder.pipeline.stores.postgres_table import PostgresTableStore
from inorder.pipeline.stores.table import SqlTableStores
from tests.fault.engine_ordeal import PARTITIONS, Stage, kill_worker, running
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT, new_engine, upsert_work
from tests.network import PostgresNetwork

BOTH = pytest.mark.parametrize("kind", ENGINES)
LONG = pytest.mark.fault
NewEngine = Callable[..., Engine]


@pytest.fixture
def mapping(unique: str) -> TableMapping:
    return TableMapping("test", unique, "messages")


@pytest.fixture
def new(spark: SparkSession, stage: Stage, mapping: TableMapping) -> NewEngine:
    """Creates engines of a kind; micro-batches are small, so that there are many boundaries."""

    def make(kind: str, stores: TableStores | None = None, bootstrap: str = "") -> Engine:
        work = upsert_work(stores or SqlTableStores(stage.url, mapping), mapping)
        return new_engine(kind, spark, work, bootstrap or stage.bootstrap, batch=200)

    return make


def jvm() -> int:
    gateway = SparkContext._gateway
    assert gateway is not None
    pid: int = gateway.proc.pid
    return pid


def kill_workers_under_load(stage: Stage, engine: Engine, kills: int) -> None:
    chance = random.Random(7)
    with running(engine) as (run,), stage.load():
        stage.wait_for_progress()
        with stage.witness():
            for _ in range(kills):
                threading.Event().wait(chance.uniform(0.0, 0.4))
                stage.eventually(lambda: kill_worker(jvm(), chance.randrange(4)), SPARK_WAIT)
                stage.wait_for_progress()
    run.result(timeout=SPARK_WAIT)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["resident", pytest.param("micro-batch", marks=LONG)])
def test_python_workers_killed_under_load_cost_nothing(stage: Stage, new: NewEngine, kind: str) -> None:
    engine = new(kind)
    kill_workers_under_load(stage, engine, 2)
    engine.run(threading.Event(), once=True)
    stage.verify()


@LONG
@BOTH
@pytest.mark.timeout(600)
def test_the_same_with_forty_kills(stage: Stage, new: NewEngine, kind: str) -> None:
    engine = new(kind)
    kill_workers_under_load(stage, engine, 40)
    engine.run(threading.Event(), once=True)
    stage.verify()


def rivals_apply_each_record_once(stage: Stage, engines: list[Engine], records: int) -> None:
    with running(*engines) as runs, stage.load():
        stage.wait_for_progress()
        with stage.witness():
            stage.wait_for_progress(records)
    for run in runs:
        run.result(timeout=SPARK_WAIT)
    engines[0].run(threading.Event(), once=True)
    stage.verify()


@pytest.mark.full
@pytest.mark.parametrize("kinds", [("resident", "resident"), ("micro-batch", "resident")], ids=" and ".join)
def test_two_drivers_at_once_apply_each_record_once(stage: Stage, new: NewEngine, kinds: tuple[str, str]) -> None:
    rivals_apply_each_record_once(stage, [new(kind) for kind in kinds], 1_000)


@LONG
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds", [("resident", "resident"), ("micro-batch", "resident"), ("micro-batch",) * 2], ids=" and ".join
)
def test_two_drivers_for_long_and_sessions_that_end(stage: Stage, new: NewEngine, kinds: tuple[str, str]) -> None:
    over = threading.Event()

    def end_sessions() -> None:
        while not over.wait(3.0):
            stage.end_sessions()

    thread = threading.Thread(target=end_sessions)
    thread.start()
    try:
        rivals_apply_each_record_once(stage, [new(kind) for kind in kinds], 20_000)
    finally:
        over.set()
        thread.join()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["resident", pytest.param("micro-batch", marks=LONG)])
def test_an_answer_to_commit_that_is_lost_is_settled_by_the_pointer(
    stage: Stage, new: NewEngine, mapping: TableMapping, kind: str
) -> None:
    with PostgresNetwork(stage.url) as proxy:
        engine = new(kind, SqlTableStores(proxy.url, mapping))
        with running(engine) as (run,), stage.load(), stage.witness():
            stage.wait_for_progress()
            for _ in range(3):
                before = proxy.cuts
                proxy.cut_after("COMMIT")
                stage.eventually(partial(proxy.has_cut, before), SPARK_WAIT)
            stage.wait_for_progress()
        run.result(timeout=SPARK_WAIT)
        engine.run(threading.Event(), once=True)
    stage.verify()


class TerminatedStore(PostgresTableStore):
    """Its session is terminated by the server right before COMMIT, once per marker file."""

    def __init__(self, url: str, mapping: TableMapping, marker: str) -> None:
        super().__init__(url, mapping)
        self._own_url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._marker = Path(marker)

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with super().slice_transaction(topic, partition) as transaction:
            yield transaction
            if not self._marker.exists():
                self._marker.touch()
                with psycopg.connect(self._own_url, autocommit=True) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE state = 'idle in transaction' AND datname = current_database()"
                    )


@dataclass(frozen=True)
class TerminatedStores:
    """Opens such stores in the workers."""

    url: str
    mapping: TableMapping
    marker: str

    def __call__(self) -> TableStore:
        return TerminatedStore(self.url, self.mapping, self.marker)


@pytest.mark.full
@BOTH
def test_a_session_that_the_server_ends_at_commit_costs_a_second_try(
    stage: Stage, new: NewEngine, mapping: TableMapping, tmp_path: Path, kind: str
) -> None:
    # Workers cannot import test modules, so the classes of this one are pickled by value.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark ships it untyped
    marker = tmp_path / "ended"
    stage.send(30)
    new(kind, TerminatedStores(stage.url, mapping, str(marker))).run(threading.Event(), once=True)
    assert marker.exists()
    stage.verify()


@pytest.mark.full
@BOTH
def test_a_database_restored_behind_a_running_driver_stops_it_loudly_and_a_new_start_replays(
    stage: Stage, new: NewEngine, kind: str
) -> None:
    engine = new(kind)
    stage.send(5)
    with running(engine) as (run,):
        stage.eventually(lambda: stage.applied() == (100, 0), SPARK_WAIT)
        with stage.connect() as connection:
            connection.execute("CREATE TABLE backup AS SELECT * FROM messages")
            connection.execute("CREATE TABLE backup_pointer AS SELECT * FROM inorder_pointer")
            stage.send(5)
            stage.eventually(lambda: stage.applied() == (200, 0), SPARK_WAIT)
            with connection.transaction():
                connection.execute("TRUNCATE messages, inorder_pointer")
                connection.execute("INSERT INTO messages SELECT * FROM backup")
                connection.execute("INSERT INTO inorder_pointer SELECT * FROM backup_pointer")
        stage.end_sessions()
        stage.send(1)
        with pytest.raises(GuaranteeError, match="is at 50, but 100 was committed before") as caught:
            run.result(timeout=SPARK_WAIT)
        assert "run `inorder pipeline run upsert` again" in caught.value.hint
    new(kind).run(threading.Event(), once=True)
    stage.verify()


@LONG
@BOTH
@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_and_comes_back_is_waited_for(
    stage: Stage, new: NewEngine, tmp_path: Path, kind: str
) -> None:
    with Kafka(tmp_path / "kafka") as broker:
        ensure_topic({"bootstrap.servers": broker.bootstrap}, stage.topic, PARTITIONS)
        stage.bootstrap = broker.bootstrap
        engine = new(kind, bootstrap=broker.bootstrap)
        with running(engine) as (run,):
            stage.send(3)
            stage.wait_for_beginning()
            broker.kill()
            broker.start()
            stage.send(3)
            stage.verify()
            assert not run.done()
        run.result(timeout=SPARK_WAIT)


@pytest.mark.timeout(900)
@LONG
@BOTH
def test_a_driver_killed_by_nine_leaves_no_task_behind_and_the_next_one_goes_on(
    stage: Stage, tmp_path: Path, kind: str
) -> None:
    config = stage.settings(tmp_path, kind)
    own = TableMapping("upsert:messages", stage.topic, "messages")
    upsert_work(SqlTableStores(stage.url, own), own)
    driver = Service("driver", ["pipeline", "run", "upsert", "--config", str(config)], tmp_path)
    stage.send(20)
    try:
        driver.start()
        stage.eventually(lambda: stage.sessions() > 0, SPARK_WAIT)
        with stage.load():
            stage.wait_for_progress()
            driver.kill()
        stage.eventually(lambda: stage.sessions() == 0, 30)
        stage.send(5)
        driver.start()
        with stage.witness():
            stage.verify()
    finally:
        driver.stop()
    assert "Stopping" in driver.log_path.read_text()
