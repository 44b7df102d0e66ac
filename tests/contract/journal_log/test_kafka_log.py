"""The topics of journals on a real broker: places are true, windows are exact, and what is lost is said to be."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.journal.stores.ports import LogRecord, Window
from inorder.kafka.admin import Cluster, ensure_topic
from inorder.model.deadline import Deadline
from inorder.model.errors import DeadlineError, RecordsLostError, RejectedError, TopicUnavailableError, TransientError
from inorder.model.journal import PartitionOffset
from inorder.model.message import Limits, Message, Record, encode
from tests.conftest import Eventually


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


@pytest.fixture
def topic(properties: dict[str, object], unique: str, eventually: Eventually) -> str:
    ensure_topic(properties, unique, 3)
    # A broker answers a request for a topic before all its threads know of it.
    eventually(lambda: Cluster(properties).partitions(unique) is not None)
    return unique


@pytest.fixture
def log(properties: dict[str, object]) -> Iterator[KafkaJournalLog]:
    log = KafkaJournalLog(properties)
    yield log
    log.close()


def record(topic: str, key: str, value: bytes = b"v", headers: dict[str, str] | None = None) -> Record:
    return encode(Message(topic, key=key, value=value, headers=headers or {}), Limits())


def sent(log: KafkaJournalLog, *records: Record) -> list[PartitionOffset]:
    return [future.result(60) for future in [log.send(each) for each in records]]


def deadline(seconds: float = 60) -> Deadline:
    return Deadline(time.monotonic, seconds, "Reading")


def window(topic: str, first: PartitionOffset, last: PartitionOffset) -> Window:
    return Window(topic, first.partition, first.offset, last.offset)


def read(log: KafkaJournalLog, window: Window, key: str) -> list[LogRecord]:
    return list(log.records(window, key.encode(), deadline()))


def test_a_future_holds_the_place_at_which_the_record_is_found(log: KafkaJournalLog, topic: str) -> None:
    place, after = sent(log, record(topic, "a", b"one", {"h": "ü"}), record(topic, "a"))
    assert place.partition == after.partition == log.partition_of(topic, b"a")
    (found,) = read(log, window(topic, place, place), "a")
    assert (found.offset, found.key, found.value) == (place.offset, b"a", b"one")
    assert found.headers == (("h", "ü".encode()),)
    assert found.timestamp_ms is not None


def test_reads_use_no_more_consumers_than_allowed_and_wait_for_one(properties: dict[str, object], topic: str) -> None:
    with closing(KafkaJournalLog(properties, max_consumers=1)) as log:
        first, last = sent(log, record(topic, "a"), record(topic, "a"))
        window = Window(topic, first.partition, first.offset, last.offset)
        unfinished = log.records(window, b"a", deadline())
        next(unfinished)
        with pytest.raises(TransientError, match="All 1 are in use"):
            next(log.records(window, b"a", deadline(0.2)))
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(read, log, window, "a")
            unfinished.close()
            assert len(waiting.result(60)) == 2


def test_records_of_one_thread_arrive_in_its_order(log: KafkaJournalLog, topic: str) -> None:
    places = sent(log, *(record(topic, "a", str(number).encode()) for number in range(500)))
    assert places == sorted(places)
    found = read(log, window(topic, places[0], places[-1]), "a")
    assert [int(each.value or b"") for each in found] == list(range(500))


def test_a_window_holds_the_records_of_its_key_and_nothing_else(log: KafkaJournalLog, topic: str) -> None:
    mixed = sent(log, *(record(topic, f"k{number % 50}", str(number).encode()) for number in range(1000)))
    own = [number for number in range(1000) if number % 50 == 7]
    part = own[3:9]
    found = read(log, window(topic, mixed[part[0]], mixed[part[-1]]), "k7")
    assert [int(each.value or b"") for each in found] == part


def test_a_window_that_ends_at_the_end_of_the_partition_ends(log: KafkaJournalLog, topic: str) -> None:
    places = sent(log, record(topic, "a"), record(topic, "a"))
    assert len(read(log, window(topic, *places), "a")) == 2
    beyond = Window(topic, places[0].partition, places[1].offset + 1, places[1].offset)
    assert read(log, beyond, "a") == []


def test_an_open_transaction_in_the_window_is_waited_for_and_its_abort_is_no_record(
    log: KafkaJournalLog, topic: str, properties: dict[str, object], unique: str
) -> None:
    (first,) = sent(log, record(topic, "a", b"1"))
    other = Producer({**properties, "transactional.id": unique})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(topic, b"never", b"a", partition=first.partition)
    other.flush(60)
    (last,) = sent(log, record(topic, "a", b"2"))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, log, window(topic, first, last), "a")
        with pytest.raises(TimeoutError):
            reading.result(0.5)
        other.abort_transaction(20)
        assert [each.value for each in reading.result(60)] == [b"1", b"2"]


def test_a_reader_that_stops_early_gives_its_consumer_back(log: KafkaJournalLog, topic: str) -> None:
    places = sent(log, *(record(topic, "a", str(number).encode()) for number in range(100)))
    for _ in range(3):
        reading = log.records(window(topic, places[0], places[-1]), b"a", deadline())
        assert next(reading).value == b"0"
        reading.close()
    assert log._pool.idle == 1


def test_many_readers_at_once_see_what_each_asked_for(log: KafkaJournalLog, topic: str) -> None:
    keys = [f"k{number}" for number in range(8)]
    places = {key: sent(log, *(record(topic, key, f"{key}{number}".encode()) for number in range(20))) for key in keys}
    with ThreadPoolExecutor(8) as pool:
        reads = {key: pool.submit(read, log, window(topic, places[key][0], places[key][-1]), key) for key in keys}
    for key, reading in reads.items():
        assert [each.value for each in reading.result()] == [f"{key}{number}".encode() for number in range(20)]


def test_records_that_retention_removed_are_an_error_before_anything_is_yielded(
    log: KafkaJournalLog, topic: str, properties: dict[str, object]
) -> None:
    places = sent(log, *(record(topic, "a") for _ in range(10)))
    start = TopicPartition(topic, places[0].partition, places[5].offset)
    client = AdminClient(
        {"bootstrap.servers": str(properties["bootstrap.servers"])}
    )  # kept by name: its answers die with it
    client.delete_records([start])[start].result(60)
    with pytest.raises(RecordsLostError, match="is gone, and was not replicated") as caught:
        read(log, window(topic, places[0], places[-1]), "a")
    assert (caught.value.wanted, caught.value.first) == (places[0].offset, places[5].offset)
    assert len(read(log, window(topic, places[5], places[-1]), "a")) == 5
    tail = log.tail(topic)
    with pytest.raises(RecordsLostError):
        tail.start({places[0].partition: places[0].offset})
    tail.close()


def test_a_window_that_does_not_fill_ends_with_its_deadline(log: KafkaJournalLog, topic: str) -> None:
    (place,) = sent(log, record(topic, "a"))
    ahead = Window(topic, place.partition, place.offset + 1, place.offset + 10)
    with pytest.raises(DeadlineError, match="timed out after"):
        list(log.records(ahead, b"a", deadline(0.5)))


def test_a_record_above_the_topics_limit_is_refused_and_takes_no_other_with_it(
    log: KafkaJournalLog, properties: dict[str, object], unique: str
) -> None:
    ensure_topic(properties, f"{unique}-small", 1, {"max.message.bytes": "20000"})
    small = f"{unique}-small"
    futures = [log.send(record(small, "a", b"x" * 300)) for _ in range(200)]
    futures.insert(100, log.send(record(small, "b", b"x" * 30_000)))
    futures += [log.send(record(small, "a", b"x" * 300)) for _ in range(200)]
    with pytest.raises(RejectedError, match=r"has 30.* bytes; topic .* takes 20000"):
        futures.pop(100).result(60)
    assert len({future.result(60).offset for future in futures}) == 400


def test_an_unknown_topic_is_named_at_once_and_is_found_when_it_is_there(
    log: KafkaJournalLog, properties: dict[str, object], unique: str
) -> None:
    with pytest.raises(TopicUnavailableError, match=f"{unique}-none"):
        log.send(record(f"{unique}-none", "a")).result(60)
    ensure_topic(properties, f"{unique}-none", 1)
    assert log.send(record(f"{unique}-none", "a")).result(60) == PartitionOffset(0, 0)


def test_a_tail_follows_all_partitions_and_can_be_set_to_others(
    log: KafkaJournalLog, topic: str, eventually: Eventually
) -> None:
    tail = log.tail(topic)
    assert list(tail.partitions()) == [0, 1, 2]
    tail.start(dict.fromkeys(range(3), 0))
    places = sent(log, *(record(topic, f"k{number}") for number in range(30)))
    seen: set[PartitionOffset] = set()

    def all_seen() -> bool:
        for partition, records in tail.poll(0.5).items():
            seen.update(PartitionOffset(partition, each.offset) for each in records)
        return seen == set(places)

    eventually(all_seen)
    last = max(place for place in places if place.partition == 1)
    tail.start({1: last.offset})
    found = eventually(lambda: tail.poll(0.5))
    assert {partition: [each.offset for each in records] for partition, records in found.items()} == {1: [last.offset]}
    tail.close()
    tail.close()


def test_a_closed_log_says_so(properties: dict[str, object], topic: str) -> None:
    log = KafkaJournalLog(properties)
    sent(log, record(topic, "a"))
    log.close()
    log.close()
    with pytest.raises(TransientError, match="closed"):
        log.send(record(topic, "a")).result(60)
    with pytest.raises(TransientError, match="closed"):
        list(log.records(Window(topic, 0, 0, 0), b"a", deadline()))
    assert not any(thread.name == "inorder-journal-producer" for thread in threading.enumerate())
