"""Batches that are run again reach Kafka once: the protocol of the sink `inorder.kafka`, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from confluent_kafka import TopicPartition

from inorder.kafka.readers import committed_consumer
from inorder.model.errors import FencedError, GuaranteeError, RejectedError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.pipeline.stores.batch_log import BatchId, BatchPart, KafkaBatchLog, Sent

FIRST = BatchId("query", 0)


class Lanes:
    """A log on a topic of its own with one partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.properties = {"bootstrap.servers": bootstrap}
        self.log = KafkaBatchLog((("bootstrap.servers", bootstrap),), topic)

    def send(self, lane: int, batch: BatchId | None, *values: str) -> Sent:
        part = self.log.open(lane, batch, [self.topic])
        part.add(self.rows(*values))
        return part.commit()

    def rows(self, *values: str) -> list[OutboxRow]:
        return [
            OutboxRow(id, self.topic, value.encode(), value.encode(), (("h", b"1"),), None, None)
            for id, value in enumerate(values)
        ]

    def part(self, lane: int = 0) -> BatchPart:
        return BatchPart(self.properties, f"inorder.spark.{self.topic}.{lane}", [self.topic], {}, FIRST)

    def committed(self) -> list[str]:
        consumer = committed_consumer(self.properties, self.topic)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[str] = []
        while (read := consumer.poll(30)) is not None and read.error() is None:
            found.append((read.value() or b"").decode())
        consumer.close()
        return found


@pytest.fixture
def lanes(kafka_bootstrap: str, unique: str, create_topic: Callable[..., None]) -> Lanes:
    create_topic(unique, 1, max_message_bytes="2000")
    return Lanes(kafka_bootstrap, unique)


def test_a_part_that_was_sent_is_not_sent_again(lanes: Lanes) -> None:
    assert lanes.send(0, FIRST, "a", "b") == Sent(2)
    assert lanes.send(0, FIRST, "b", "a") == Sent(2, is_replayed=True)
    assert lanes.send(1, FIRST, "c") == Sent(1), "lanes know nothing of each other"
    assert lanes.send(0, BatchId("query", 1), "d") == Sent(1)
    assert lanes.send(1, BatchId("query", 5), "e") == Sent(1), "a lane may have had nothing for a while"
    assert lanes.committed() == ["a", "b", "c", "d", "e"]


def test_a_batch_that_is_not_what_it_was_is_refused(lanes: Lanes) -> None:
    lanes.send(0, FIRST, "a")
    lanes.send(0, BatchId("query", 1), "b")
    for batch, values in ((FIRST, ["a"]), (BatchId("query", 1), ["c"]), (BatchId("other", 2), ["d"])):
        with pytest.raises(GuaranteeError):
            lanes.send(0, batch, *values)
    assert lanes.committed() == ["a", "b"]


def test_an_attempt_that_was_overtaken_commits_nothing(lanes: Lanes) -> None:
    paused = lanes.part()
    assert paused.progress() is None
    lanes.send(0, FIRST, "a")
    paused.add(lanes.rows("a"))
    with pytest.raises(FencedError, match="another query of the same name"):
        paused.commit()
    assert lanes.committed() == ["a"]


def test_a_part_whose_rows_fail_half_way_leaves_nothing(lanes: Lanes) -> None:
    part = lanes.log.open(0, FIRST, [lanes.topic])
    part.add(lanes.rows("a"))
    part.abort()
    assert lanes.send(0, FIRST, "a", "b") == Sent(2)
    assert lanes.committed() == ["a", "b"]


def test_a_record_that_the_broker_refuses_is_named_and_its_part_invisible(lanes: Lanes) -> None:
    large = Random(1).randbytes(3000).hex()  # compression must not make it fit
    with pytest.raises(RejectedError, match=f"a record of topic '{lanes.topic}' with key b'{large[:9]}"):
        lanes.send(0, FIRST, "a", large)
    assert lanes.send(0, FIRST, "a") == Sent(1)
    assert lanes.committed() == ["a"]


def test_without_a_number_every_run_sends(lanes: Lanes) -> None:
    assert lanes.send(0, None, "a") == lanes.send(0, None, "a") == Sent(1)
    assert lanes.committed() == ["a", "a"]


def test_partitions_are_chosen_as_everywhere_else(
    kafka_bootstrap: str, unique: str, create_topic: Callable[..., None]
) -> None:
    create_topic(unique, 4)
    servers = (("bootstrap.servers", kafka_bootstrap),)
    log = KafkaBatchLog(servers, unique, ((unique, Partitioner.ID_MODULO),))
    rows = [OutboxRow(id, unique, str(id).encode(), b"v", (), None, None) for id in range(8)]
    part = log.open(0, FIRST, [unique])
    part.add(rows)
    part.add([OutboxRow(8, unique, b"1", b"chosen", (), 3, 1_000)])
    part.commit()
    consumer = committed_consumer(dict(servers), unique)
    consumer.assign([TopicPartition(unique, 3, 0)])
    found = [consumer.poll(30) for _ in range(3)]
    consumer.close()
    assert [
        (each.key(), each.value(), each.timestamp()[1] if each.value() == b"chosen" else 0) for each in found if each
    ] == [
        (b"3", b"v", 0),
        (b"7", b"v", 0),
        (b"1", b"chosen", 1_000),
    ]
