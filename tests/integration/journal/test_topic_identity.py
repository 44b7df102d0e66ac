"""A journal belongs to one incarnation of its topic: what was acknowledged is read, or refused by name; never left out.

The job runs in this process, on real Kafka and PostgreSQL; what decides is the same for all engines.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import inorder
from inorder.app import App
from inorder.embedded import Cassandra
from inorder.engines.in_process import InProcess, begin_at
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.progress import RunTotals
from inorder.engines.slice_work import Slice, SliceWorker
from inorder.journal.client import JournalClient
from inorder.journal.jobs import replicate_work
from inorder.journal.reading.reader import JournalReader
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.journal.stores.opening import JournalReplicas
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_partitions, ensure_topic
from inorder.model.errors import ConfigurationError, OtherTopicError, TransientError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.operating import recreate


class Place:
    """A journal topic, its store, and what an operator does with them."""

    def __init__(self, bootstrap: str, url: str, topic: str, eventually: Eventually) -> None:
        self.topic = topic
        self.properties: dict[str, object] = {"bootstrap.servers": bootstrap}
        self.settings = inorder.Settings.load(
            None,
            kafka={"bootstrap.servers": bootstrap},
            database={"url": url} if url.startswith("postgresql") else {},
            journal={"store": url, "origin": "here"},
        )
        self.url = url
        self._eventually = eventually
        ensure_topic(self.properties, topic, 1)
        with App(self.settings) as app:
            app.install_schema("journal")

    def append(self, *numbers: int, id: str = "id") -> None:
        with inorder.Journals(self.settings) as journals:
            for number in numbers:
                journals.journal(Key(id, self.topic)).append([Event(number, f"{number}")], allow_gaps=True)

    def read(self, id: str = "id") -> list[int]:
        with inorder.Journals(self.settings) as journals:
            return [record.seq_nr for record in journals.journal(Key(id, self.topic)).read()]

    def replicate(self) -> dict[str, int]:
        """What `inorder pipeline run replicate --once` does, without Spark."""
        totals = RunTotals()
        work = ReplicateWork((self.topic,), replicate_work(self.settings).replicas)
        InProcess(work, KafkaSource(self.properties)).run(threading.Event(), once=True, listener=totals)
        return totals.totals()

    def read_slice(self, worker: SliceWorker, partition: int) -> Slice:
        """What a task reads of a partition from its offset on."""
        source = KafkaSource(self.properties)
        begin = begin_at(worker, source, [(self.topic, partition)])
        with closing(source.open(begin.offsets, headers=True)) as reader:
            return dataclasses.replace(reader.read(100, 10.0).slices[0], topic_id=begin.ids[self.topic])

    def replicate_partition(self, partition: int) -> None:
        with closing(self.open_worker()) as worker:
            worker.apply(self.read_slice(worker, partition), 0)

    def open_worker(self) -> SliceWorker:
        return ReplicateWork((self.topic,), JournalReplicas(self.url)).open()

    def reset(self) -> dict[str, object] | None:
        with App(self.settings) as app:
            found = app.journal_admin.reset(self.topic)
        return None if found is None else found.as_dict()

    def recreate(self, partitions: int = 1) -> None:
        recreate(self.properties, self.topic, partitions, self._eventually)


@pytest.fixture
def place(kafka_bootstrap: str, postgres_url: str, unique: str, eventually: Eventually) -> Place:
    return Place(kafka_bootstrap, postgres_url, unique, eventually)


@pytest.mark.full
def test_acknowledged_appends_of_a_recreated_topic_are_refused_by_name_and_read_after_a_reset(place: Place) -> None:
    place.append(1, 2, 3)
    assert place.read() == [1, 2, 3]
    place.replicate()
    place.recreate()
    # A foreign client writes all the same, past the replicated offset, and is not lost by the reset.
    foreign(place, 4, 5)
    for act in (place.read, lambda: place.append(6), place.replicate):
        with pytest.raises(OtherTopicError, match=f"{place.topic}.*re-created.*id .* id ") as refused:
            act()
        assert f"inorder journal reset {place.topic}" in refused.value.hint
    changed = place.reset()
    assert changed is not None
    assert changed["topic_id"] != changed["topic_id_before"]
    assert place.read() == [1, 2, 3, 4, 5]
    place.append(6)
    assert place.read() == [1, 2, 3, 4, 5, 6]
    assert place.replicate()["applied"] >= 3
    assert place.read() == [1, 2, 3, 4, 5, 6]
    assert place.reset() is None


def foreign(place: Place, *numbers: int, id: str = "id") -> None:
    """Appends as a client that knows nothing of the store's topic."""
    log, store = KafkaJournalLog(place.properties), PostgresJournal(place.url)
    with JournalClient(log, store, JournalReader(log, store, lambda: 0.0)) as journals:
        for number in numbers:
            journals.journal(Key(id, place.topic)).append([Event(number, f"{number}")], allow_gaps=True)


@pytest.mark.full
def test_a_purge_and_snapshots_after_a_reset_concern_the_former_life(place: Place) -> None:
    place.append(1, 2, 3)
    with inorder.Journals(place.settings) as journals:
        journal = journals.journal(Key("id", place.topic))
        place.replicate()
        for _ in range(20):
            journal.mark()
        journal.save_snapshot(3, b"three")
    place.recreate()
    place.reset()
    with inorder.Journals(place.settings) as journals:
        journal = journals.journal(Key("id", place.topic))
        found = journal.recover().snapshot
        assert found is not None
        assert found.seq_nr == 3
        journal.purge()
        assert journal.snapshot() is None
        journal.append([Event(1, b"new")], expected_seq_nr=0)
        assert [each.seq_nr for each in journal.read()] == [1]
        place.replicate()
        assert [each.event.payload for each in journal.read()] == [b"new"]
        assert journal.snapshot() is None


@pytest.mark.full
def test_an_open_client_notices_a_recreated_topic_and_goes_on_after_the_reset(
    place: Place, eventually: Eventually
) -> None:
    with inorder.Journals(place.settings) as journals:
        journal = journals.journal(Key("id", place.topic))
        journal.append([Event(number) for number in range(1, 6)])
        assert len(list(journal.read())) == 5
        place.replicate()
        assert len(list(journal.read())) == 5
        place.recreate()
        eventually(lambda: refuses(lambda: list(journal.read())))
        place.reset()
        eventually(lambda: not refuses(lambda: list(journal.read())))
        journal.append([Event(6)], expected_seq_nr=5)
        assert [each.seq_nr for each in journal.read()] == [1, 2, 3, 4, 5, 6]
        place.replicate()
        assert [each.seq_nr for each in journal.read()] == [1, 2, 3, 4, 5, 6]


def refuses(act: Callable[[], object]) -> bool:
    try:
        act()
    except OtherTopicError:
        return True
    return False


@pytest.mark.full
def test_a_slice_of_the_former_topic_is_not_applied_after_a_reset(place: Place) -> None:
    place.append(1, 2)
    place.replicate()
    place.append(3)
    with closing(place.open_worker()) as paused:
        former = place.read_slice(paused, 0)
        place.recreate()
        place.reset()
        with pytest.raises(OtherTopicError, match="re-created"):
            paused.apply(former, 0)
    place.append(10)
    place.replicate()
    assert place.read() == [1, 2, 10]


@pytest.mark.full
def test_added_partitions_are_refused_until_what_was_before_is_replicated(place: Place) -> None:
    ids = [f"journal {number}" for number in range(8)]
    for id in ids:
        place.append(1, 2, id=id)
    place.replicate()
    place.append(3, id=ids[0])
    ensure_partitions(place.properties, place.topic, 3)
    for act in (lambda: place.read(ids[0]), lambda: place.append(4, id=ids[0])):
        with pytest.raises(OtherTopicError, match="has 3 partitions, and had 1") as refused:
            act()
        assert f"inorder journal reset {place.topic}" in refused.value.hint
    with pytest.raises(TransientError, match="not replicated"):
        place.reset()
    place.replicate_partition(0)  # engines go on with the partitions that they know
    place.reset()
    for id in ids:
        place.append(4, id=id)
    for _ in range(2):
        assert [place.read(id) for id in ids] == [[1, 2, 3, 4], *([[1, 2, 4]] * 7)]
        place.replicate()


@pytest.mark.full
def test_records_that_retention_removed_before_they_were_replicated_are_accepted_by_a_reset(place: Place) -> None:
    place.append(1)
    place.replicate()
    place.append(2, 3, 4)
    admin = AdminClient({"bootstrap.servers": str(place.properties["bootstrap.servers"])})
    for future in admin.delete_records([TopicPartition(place.topic, 0, 3)]).values():
        future.result(timeout=30)
    with pytest.raises(inorder.InorderError, match="begins at 3") as refused:
        place.replicate()
    assert f"inorder journal reset {place.topic}" in refused.value.hint
    place.reset()
    place.replicate()
    assert place.read() == [1, 4]


@pytest.mark.full
def test_a_checkpoint_of_the_former_topic_is_refused_and_a_new_subscription_shows_past_and_present(
    place: Place,
) -> None:
    place.append(1, 2, 3)
    place.replicate()
    with inorder.Journals(place.settings) as journals:
        before = [each.checkpoint for each in journals.subscribe(place.topic, idle_seconds=1.0)]
    place.recreate()
    place.reset()
    place.append(4)
    with inorder.Journals(place.settings) as journals:
        with pytest.raises(OtherTopicError, match="checkpoint"):
            list(journals.subscribe(place.topic, before[-1], idle_seconds=1.0))
        shown = list(journals.subscribe(place.topic, idle_seconds=1.0))
        assert [each.record.seq_nr for each in shown] == [1, 2, 3, 4]
        for number in (1, 3):
            after = journals.subscribe(place.topic, shown[number].checkpoint, idle_seconds=1.0)
            assert [each.record.seq_nr for each in after] == [1, 2, 3, 4][number + 1 :]


def test_records_in_quarantine_are_settled_before_a_reset(place: Place) -> None:
    place.append(1)
    place.replicate()
    with psycopg.connect(place.url.replace("+psycopg", "")) as direct:
        direct.execute(
            'INSERT INTO quarantine (topic, id, partition, "offset", reason, headers)'
            " VALUES (%s, 'x', 0, 9, '', '[]')",
            [place.topic],
        )
    place.recreate()
    with pytest.raises(ConfigurationError, match="quarantine"):
        place.reset()


@pytest.mark.full
def test_a_store_of_an_earlier_version_works_and_records_the_first_topic_that_the_replicator_sees(place: Place) -> None:
    with psycopg.connect(place.url.replace("+psycopg", "")) as direct:
        direct.execute("DROP TABLE journal_topic")
    place.append(1, 2)
    assert place.read() == [1, 2]
    with App(place.settings) as app:
        app.install_schema("journal")
    place.replicate()
    assert place.read() == [1, 2]
    with closing(PostgresJournal(place.url)) as store:
        found = store.incarnation(place.topic)
    assert found is not None
    assert found.id == KafkaSource(place.properties).topic_id(place.topic)


@pytest.fixture
def on_cassandra(kafka_bootstrap: str, cassandra: Cassandra, unique: str, eventually: Eventually) -> Place:
    return Place(kafka_bootstrap, f"{cassandra.url}/j{unique.replace('-', '_')[-20:]}", unique, eventually)


@pytest.mark.full
def test_a_recreated_topic_is_refused_on_cassandra_and_so_is_its_reset(on_cassandra: Place) -> None:
    place = on_cassandra
    place.append(1, 2, 3)
    place.replicate()
    place.recreate()
    for act in (place.read, lambda: place.append(4), place.replicate):
        with pytest.raises(OtherTopicError, match="re-created"):
            act()
    with pytest.raises(ConfigurationError, match="Cassandra"):
        place.reset()
