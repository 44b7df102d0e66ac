"""`inorder topics migrate` copies each record exactly once and keeps every key's order, broken off or not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce

import pytest
from confluent_kafka import Producer

from inorder.engines import in_process
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.progress import CompositeListener, RunTotals
from inorder.engines.slice_work import Slice, SliceOutcome, portions
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, MassRefusalError, RejectedError
from inorder.model.partitioning import Partitioner, Place, partition_of
from inorder.testing.checker import check_delivery, check_placement
from inorder.topics.gate import BoundedWork
from inorder.topics.generations import Target
from inorder.topics.stores.kafka_copy import ORIGIN, CopyWork, PartitionCopier
from inorder.topics.stores.kafka_topics import KafkaTopicCluster
from tests.conftest import Eventually
from tests.operating import recreate

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
    monkeypatch.setattr(in_process, "SLICE_RECORDS", 40)


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


def copy_of(properties: dict[str, object], source: str, destination: str | None = None) -> CopyWork:
    return CopyWork(tuple(properties.items()), source, destination or f"{source}.copy")


@dataclass
class Copying:
    """Runs of the copy in this process; each is a new one, as after a crash."""

    properties: dict[str, object]
    source: str
    copied: int = 0

    def run(self, *, most_slices: int | None = None, ends: tuple[int, ...] | None = None) -> int:
        """Copies to the end, or gives up behind so many slices; how many records that were."""
        counting, stop = RunTotals(), threading.Event()
        stopping = _StopsAfter(most_slices, stop)
        work = copy_of(self.properties, self.source)
        wanted = work if ends is None else BoundedWork(work, ((self.source, ends),))
        InProcess(wanted, KafkaSource(self.properties)).run(
            stop, once=True, listener=CompositeListener(counting, stopping)
        )
        copied: int = counting.totals()["applied"]
        self.copied += copied
        return copied


class _StopsAfter:
    def __init__(self, slices: int | None, stop: threading.Event) -> None:
        self._left = slices
        self._stop = stop

    def applied(self, outcome: SliceOutcome) -> None:
        if self._left is not None and outcome.read:
            self._left -= 1
            if self._left <= 0:
                self._stop.set()

    def spent(self, phases: Mapping[str, float]) -> None:
        pass

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        pass

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not kept."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        raise AssertionError(f"{place} waits: {error}")


@pytest.fixture
def copying(properties: dict[str, object], source: str) -> Copying:
    return Copying(properties, source)


def test_a_copy_has_every_record_once_in_order_with_its_origin(
    source: str, copying: Copying, all_copied: AllCopied
) -> None:
    assert copying.run() == KEYS * ROUNDS
    for record in all_copied():
        headers = dict(record.headers)
        assert headers["place"] == record.value
        assert (headers[ORIGIN] or b"").startswith(f"{source}/".encode())
        assert record.timestamp_ms == 1_000 + int(record.value or b"0")
        assert record.partition == partition_of(record.key, 5, Partitioner.MURMUR2)
    assert copying.run() == 0, "nothing is copied twice"


@pytest.mark.usefixtures("_in_small_steps")
@pytest.mark.full
def test_a_copy_that_was_broken_off_goes_on_where_it_was(copying: Copying, all_copied: AllCopied) -> None:
    runs = 0
    while copying.copied < KEYS * ROUNDS:
        copying.run(most_slices=2)
        runs += 1
    assert runs > 3
    all_copied()


def slices_of(properties: dict[str, object], source: str, eventually: Eventually) -> dict[int, Slice]:
    """All that each partition of the source holds."""
    found: dict[int, list[Slice]] = {}
    reader = KafkaSource(properties).open({(source, number): None for number in range(3)}, headers=True)

    def is_read() -> bool:
        for each in reader.read(10_000, 0.1).slices:
            found.setdefault(each.partition, []).append(each)
        return sum(len(each) for some in found.values() for each in some) == KEYS * ROUNDS

    with closing(reader):
        eventually(is_read)
    return {number: reduce(_joined, some) for number, some in found.items()}


def _joined(one: Slice, other: Slice) -> Slice:
    return replace(
        one,
        offsets=[*one.offsets, *other.offsets],
        keys=[*one.keys, *other.keys],
        values=[*one.values, *other.values],
        timestamps=[*one.timestamps, *other.timestamps],
        headers=[*one.headers, *other.headers],
    )


def test_a_copier_that_died_or_slept_in_a_transaction_copies_nothing_twice(
    properties: dict[str, object], source: str, copying: Copying, all_copied: AllCopied, eventually: Eventually
) -> None:
    for number, batch in slices_of(properties, source, eventually).items():
        asleep = PartitionCopier(copy_of(properties, source), number)
        asleep._producer.begin()
        for index in range(len(batch) // 2):
            asleep._send(batch, index)
        asleep._producer.client.flush(10)
    assert copying.run() == KEYS * ROUNDS
    all_copied()


@pytest.mark.full
def test_two_copiers_that_take_partitions_from_each_other_copy_nothing_twice(
    properties: dict[str, object], source: str, all_copied: AllCopied, eventually: Eventually
) -> None:
    """So do the workers of Spark: a partition's micro-batches go now to one and now to another."""
    workers = [copy_of(properties, source).open() for _ in range(2)]
    copied = 0
    for batch in slices_of(properties, source, eventually).values():
        for turn, piece in enumerate(portions(batch, most_bytes=40)):
            for worker in (workers[turn % 2], workers[(turn + 1) % 2]):
                outcome = worker.apply(piece, expected=0)
                copied += outcome.applied
                assert outcome.next_offset == piece.next_offset
    assert copied == KEYS * ROUNDS
    all_copied()
    for worker in workers:
        worker.close()


def test_an_offset_that_went_back_is_told_and_not_copied_again(
    properties: dict[str, object], source: str, eventually: Eventually
) -> None:
    batch = next(iter(slices_of(properties, source, eventually).values()))
    with closing(copy_of(properties, source).open()) as worker, pytest.raises(GuaranteeError, match="seen committed"):
        worker.apply(batch, expected=batch.next_offset + 1)


@pytest.mark.full
def test_another_topic_of_the_same_name_is_copied_from_its_first_record(
    properties: dict[str, object], copying: Copying, source: str, eventually: Eventually
) -> None:
    """The group coordinator deletes the offsets of a topic with the topic."""
    copying.run()
    recreate(properties, source, 3, eventually)
    producer = Producer(properties)
    for number in range(3 * KEYS * ROUNDS):
        producer.produce(source, "other", str(number), number % 3)
    assert producer.flush(30) == 0
    assert copying.run() == 3 * KEYS * ROUNDS


@pytest.mark.full
def test_a_record_that_the_copy_refuses_is_named_with_its_place(
    properties: dict[str, object], source: str, eventually: Eventually
) -> None:
    ensure_topic(properties, f"{source}.narrow", 1, {"max.message.bytes": "1000"})
    found = slices_of(properties, source, eventually)
    batch = replace(found[1], values=[os.urandom(2_000), *found[1].values[1:]])
    with closing(copy_of(properties, source, f"{source}.narrow").open()) as worker:
        with pytest.raises(RejectedError, match=rf"{source}\[1\] offset {batch.offsets[0]} .*MSG_SIZE_TOO_LARGE"):
            worker.apply(batch, expected=0)
        assert dict(worker.pointers(source)) == {}
        assert worker.apply(found[1], expected=0).applied == len(batch), "the worker goes on once the cause is gone"


@pytest.mark.full
def test_a_copy_stops_at_the_ends_and_a_missing_topic_is_named(
    properties: dict[str, object], source: str, copying: Copying, ends_of: EndsOf, all_copied: AllCopied
) -> None:
    ends = ends_of(source)
    assert sum(ends) > KEYS * ROUNDS, "marks of transactions take offsets too"
    halves = tuple(end // 2 for end in ends)
    assert 0 < copying.run(ends=halves) < KEYS * ROUNDS
    for record in read_back(properties, f"{source}.copy"):
        _, partition, offset = (dict(record.headers)[ORIGIN] or b"").decode().split("/")
        assert int(offset) < halves[int(partition)]
    copying.run(ends=ends)
    all_copied()
    with pytest.raises(ConfigurationError, match="no topic"):
        copy_of(properties, f"{source}.none").open().pointers(f"{source}.none")


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
