"""`inorder topics migrate` copies each record exactly once and keeps every key's order, broken off or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from inorder.kafka import copying
from inorder.kafka.copying import ORIGIN, Copier
from inorder.kafka.read_back import ReadRecord, read_back
from inorder.kafka.topic_cluster import KafkaTopicCluster
from inorder.kafka.topics import ensure_topic
from inorder.model.errors import ConfigurationError
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.topic_generations import Target
from inorder.testing.checker import check_delivery, check_placement
from tests.conftest import Eventually

EndsOf = Callable[[str], tuple[int, ...]]
AllCopied = Callable[[], list[ReadRecord]]

KEYS = 12
ROUNDS = 30


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


@pytest.fixture
def source(properties: dict[str, object], unique: str) -> str:
    """A topic with records in transactions, one of which was aborted."""
    ensure_topic(properties, unique, 3)
    ensure_topic(properties, f"{unique}.copy", 5)
    producer = transactional(properties, unique)
    for part in range(3):
        producer.begin_transaction()
        for place in range(part * 10 + 1, part * 10 + 11):
            for key in range(KEYS):
                producer.produce(unique, str(place), str(key), headers=[("place", str(place))], timestamp=1_000 + place)
        producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(unique, "never", "1", partition=0)
    producer.flush(10)
    producer.abort_transaction(30)
    return unique


def transactional(properties: dict[str, object], name: str) -> Producer:
    producer = Producer({**properties, "transactional.id": name, "partitioner": "murmur2_random"})
    producer.init_transactions(30)
    return producer


@pytest.fixture
def ends_of(properties: dict[str, object], eventually: Eventually) -> EndsOf:
    """The ends once they are known: a broker says yes when an abort is decided, before its marks are written."""
    cluster = KafkaTopicCluster(properties)
    return lambda topic: eventually(lambda: cluster.ends(topic, 3)) or ()


@pytest.fixture
def _in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK", 40)


@pytest.fixture
def all_copied(properties: dict[str, object], source: str, eventually: Eventually) -> AllCopied:
    """Asserts that everything is in the copy, once and in order; what is committed is visible a moment later."""
    committed = [(str(key).encode(), place) for key in range(KEYS) for place in range(1, ROUNDS + 1)]
    cluster = KafkaTopicCluster(properties)

    def records() -> list[ReadRecord]:
        eventually(lambda: cluster.ends(f"{source}.copy", 5))
        found = list(read_back(properties, f"{source}.copy"))
        verdict = check_delivery(committed, [(record.key, int(record.value or b"0")) for record in found])
        verdict += check_placement((record.key, record.partition) for record in found)
        assert verdict.holds, verdict
        return found

    return records


def test_a_copy_has_every_record_once_in_order_with_its_origin(
    properties: dict[str, object], source: str, all_copied: AllCopied
) -> None:
    assert Copier(properties, source, f"{source}.copy").run(None, lambda: True) == KEYS * ROUNDS
    for record in all_copied():
        headers = dict(record.headers)
        assert headers["place"] == record.value
        assert (headers[ORIGIN] or b"").startswith(f"{source}/".encode())
        assert record.timestamp_ms == 1_000 + int(record.value or b"0")
        assert record.partition == partition_of(record.key, 5, Partitioner.MURMUR2)
    assert Copier(properties, source, f"{source}.copy").run(None, lambda: True) == 0, "nothing is copied twice"


@pytest.mark.usefixtures("_in_small_steps")
def test_a_copy_that_was_broken_off_goes_on_where_it_was(
    properties: dict[str, object], source: str, all_copied: AllCopied
) -> None:
    copied, runs = 0, 0
    while copied < KEYS * ROUNDS:
        times: Iterator[bool] = iter([True, True, False])
        copied += Copier(properties, source, f"{source}.copy").run(None, lambda times=times: next(times))  # type: ignore[misc]  # a default keeps the loop's variable
        runs += 1
    assert runs > 3
    all_copied()


@pytest.mark.usefixtures("_in_small_steps")
def test_a_copier_that_died_or_slept_in_a_transaction_copies_nothing_twice(
    properties: dict[str, object], source: str, all_copied: AllCopied
) -> None:
    asleep = Copier(properties, source, f"{source}.copy")
    asleep._begin(None)
    asleep._producer.begin_transaction()
    for message in asleep._chunk() or asleep._chunk():
        asleep._send(message)
    asleep._producer.flush(10)
    assert Copier(properties, source, f"{source}.copy").run(None, lambda: True) == KEYS * ROUNDS
    all_copied()


def test_a_copy_stops_at_the_ends_and_a_missing_topic_is_named(
    properties: dict[str, object], source: str, ends_of: EndsOf, all_copied: AllCopied
) -> None:
    ends = ends_of(source)
    assert sum(ends) > KEYS * ROUNDS, "marks of transactions take offsets too"
    halves = tuple(end // 2 for end in ends)
    assert 0 < Copier(properties, source, f"{source}.copy").run(halves, lambda: True) < KEYS * ROUNDS
    for record in read_back(properties, f"{source}.copy"):
        _, partition, offset = (dict(record.headers)[ORIGIN] or b"").decode().split("/")
        assert int(offset) < halves[int(partition)]
    Copier(properties, source, f"{source}.copy").run(ends, lambda: True)
    all_copied()
    with pytest.raises(ConfigurationError, match="no topic"):
        Copier(properties, source, f"{source}.none").run(None, lambda: True)


def test_ends_are_behind_the_last_record_and_unknown_while_a_transaction_is_open(
    properties: dict[str, object], source: str, ends_of: EndsOf
) -> None:
    cluster = KafkaTopicCluster(properties)
    ends = ends_of(source)
    last = dict.fromkeys(range(3), -1)
    for record in read_back(properties, source):
        last[record.partition] = record.offset
    assert ends == tuple(last[number] + 1 for number in range(3))
    producer = transactional(properties, source)
    producer.begin_transaction()
    producer.produce(source, "open", "1")
    producer.flush(10)
    assert cluster.ends(source, 3) is None
    producer.abort_transaction(30)
    assert ends_of(source) == ends, "what was aborted does not count"


def test_a_topic_is_made_like_another_one_and_its_settings_can_be_changed(
    properties: dict[str, object], unique: str
) -> None:
    cluster = KafkaTopicCluster(properties)
    ensure_topic(properties, unique, 2, {"retention.ms": "60000"})
    cluster.make(target := Target(f"{unique}.g1", 5), like=unique)
    cluster.make(replace(target, partitions=9), like=unique)
    assert (cluster.partitions(target.topic), cluster.is_empty(target.topic)) == (5, True)
    assert cluster.given_settings(target.topic) == {"retention.ms": "60000"}
    cluster.change_settings(target.topic, {"max.message.bytes": "5000"})
    assert cluster.given_settings(target.topic) == {"retention.ms": "60000", "max.message.bytes": "5000"}
