"""Partitions read as slices from a real broker: from an offset on, committed records only, and never past a hole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from inorder.embedded.kafka import Kafka
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.slice_work import PartitionReader, Slice
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import GuaranteeError
from inorder.model.partitioning import Extent, Place
from tests.conftest import Eventually


@pytest.fixture
def source(kafka_bootstrap: str) -> KafkaSource:
    return KafkaSource({"bootstrap.servers": kafka_bootstrap})


@pytest.fixture
def topic(unique: str, create_topic: Callable[..., None]) -> str:
    create_topic(unique, 2)
    return unique


def send(bootstrap: str, topic: str, partition: int, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, b"k", partition, headers=[("h", b"1")], timestamp=1_700_000_000_123)
    assert producer.flush(30) == 0


def read_to_the_ends(reader: PartitionReader, eventually: Eventually, *places: Place) -> list[Slice]:
    slices: list[Slice] = []
    ended: set[Place] = set()

    def is_over() -> bool:
        reading = reader.read(100, 0.1)
        slices.extend(reading.slices)
        ended.update(reading.ended)
        return ended >= set(places)

    eventually(is_over, 30)
    return slices


def test_each_partition_begins_where_it_is_told_to_and_tells_its_end(
    source: KafkaSource, topic: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    send(kafka_bootstrap, topic, 0, b"a", b"b", b"c")
    send(kafka_bootstrap, topic, 1, b"d")
    with closing(source.open({(topic, 0): 1, (topic, 1): None}, headers=True, reports_ends=True)) as reader:
        slices = read_to_the_ends(reader, eventually, (topic, 0), (topic, 1))
    found = {
        (one.partition, offset): value for one in slices for offset, value in zip(one.offsets, one.values, strict=True)
    }
    assert found == {(0, 1): b"b", (0, 2): b"c", (1, 0): b"d"}
    assert slices[0].keys[0] == b"k"
    assert slices[0].timestamps[0] == 1_700_000_000_123_000
    assert list(slices[0].timestamps[:1]) == [1_700_000_000_123_000]
    assert slices[0].headers[0] == (("h", b"1"),)
    assert len(slices[0].timestamps) == len(slices[0])


def test_a_slice_has_at_most_so_many_records_of_one_partition_in_order(
    source: KafkaSource, topic: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    for partition in (0, 1):
        send(kafka_bootstrap, topic, partition, *(b"%d" % number for number in range(250)))
    with closing(source.open({(topic, 0): None, (topic, 1): None}, reports_ends=True)) as reader:
        slices = read_to_the_ends(reader, eventually, (topic, 0), (topic, 1))
    assert max(len(one) for one in slices) <= 100
    for partition in (0, 1):
        assert [offset for one in slices if one.partition == partition for offset in one.offsets] == list(range(250))


def test_what_a_transaction_has_not_committed_is_neither_read_nor_within_the_extent(
    source: KafkaSource, topic: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    assert (source.extents(topic) or {})[0] == Extent(0, 2)
    with closing(source.open({(topic, 0): None}, reports_ends=True)) as reader:
        assert read_to_the_ends(reader, eventually, (topic, 0)) == []
    producer.abort_transaction(30)


def test_an_offset_that_is_gone_is_loud_and_never_skipped(
    source: KafkaSource, topic: str, kafka_bootstrap: str, eventually: Eventually
) -> None:
    send(kafka_bootstrap, topic, 0, b"a", b"b", b"c")
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(timeout=30)
    with (
        closing(source.open({(topic, 0): 1})) as reader,
        pytest.raises(GuaranteeError, match=rf"{topic}\[0\] no longer holds offset") as caught,
    ):
        read_to_the_ends(reader, eventually, (topic, 1))
    assert f"`inorder pipeline reset {topic}`" in caught.value.hint
    assert caught.value.place == (topic, 0)


def test_a_topic_that_does_not_exist_has_no_extents_and_asking_does_not_make_it(
    source: KafkaSource, unique: str
) -> None:
    assert source.extents(unique) is None
    assert source.partitions(unique) is None


@pytest.mark.full
def test_a_log_that_was_truncated_below_the_last_record_is_loud_though_the_offset_exists_again(
    tmp_path: Path, unique: str, eventually: Eventually
) -> None:
    """A new leader epoch begins at offset 3; a pointer at 5 whose last record has the former epoch was cut off."""
    place = (unique, 0)
    with Kafka(tmp_path / "kafka") as broker:
        source = KafkaSource({"bootstrap.servers": broker.bootstrap})
        ensure_topic(source.properties, unique, 1)
        send(broker.bootstrap, unique, 0, b"a", b"b", b"c")
        broker.restart()
        send(broker.bootstrap, unique, 0, b"d", b"e", b"f")
        with closing(source.open({place: 2}, reports_ends=True)) as reader:
            last = read_to_the_ends(reader, eventually, place)[-1].leader_epoch
        assert last is not None
        with closing(source.open({place: 5}, reports_ends=True, epochs={place: last})) as reader:
            assert [list(each.offsets) for each in read_to_the_ends(reader, eventually, place)] == [[5]]
        with (
            closing(source.open({place: 5}, reports_ends=True, epochs={place: last - 1})) as reader,
            pytest.raises(GuaranteeError, match="no longer holds offset") as caught,
        ):
            read_to_the_ends(reader, eventually, place)
        assert caught.value.place == place
