"""Every shard log fences earlier owners and commits records together with their marker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from inorder.kafka.read_back import read_back
from inorder.kafka.shard_log import KafkaShardLog
from inorder.kafka.topics import ensure_topic
from inorder.model.errors import FencedError, RejectedError, UnknownOutcomeError
from inorder.model.message import RecordHeaders
from inorder.model.partition import Partitioner
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.shard_log import ShardLog
from inorder.testing.memory_log import MemoryBroker, MemoryShardLog


@dataclass(frozen=True)
class Case:
    """One implementation: how to open a log on the shard, and how to see what is committed."""

    open: Callable[[], ShardLog]
    committed: Callable[[], list[tuple[bytes | None, bytes | None]]]


@pytest.fixture(params=["memory", "kafka"])
def case(request: pytest.FixtureRequest, unique: str) -> Case:
    if request.param == "memory":
        broker = MemoryBroker()
        return Case(lambda: MemoryShardLog(broker), lambda: [(row.key, row.value) for row in broker.records])
    properties = {"bootstrap.servers": request.getfixturevalue("kafka_bootstrap")}
    return Case(
        lambda: KafkaShardLog(properties, group=unique),
        lambda: [(record.key, record.value) for record in read_back(properties, unique)],
    )


def row(
    topic: str, id: int, *, key: bytes = b"k", value: bytes | None = None, headers: RecordHeaders = ()
) -> OutboxRow:
    return OutboxRow(id, topic, key, value or str(id).encode(), headers, None, None)


def test_a_shard_that_was_never_owned_has_no_marker(case: Case) -> None:
    assert case.open().take_over() is None


def test_the_next_owner_finds_the_last_committed_marker(case: Case, unique: str) -> None:
    first = case.open()
    first.take_over()
    first.publish([row(unique, 1)], b"one")
    first.publish([row(unique, 2)], b"two")
    assert case.open().take_over() == b"two"
    assert case.committed() == [(b"k", b"1"), (b"k", b"2")]


def test_an_owner_that_was_taken_over_commits_nothing_more(case: Case, unique: str) -> None:
    first, second = case.open(), case.open()
    first.take_over()
    first.publish([row(unique, 1)], b"one")
    assert second.take_over() == b"one"
    with pytest.raises(FencedError):
        first.publish([row(unique, 2)], b"stale")
    second.publish([row(unique, 3)], b"three")
    assert case.committed() == [(b"k", b"1"), (b"k", b"3")]
    assert case.open().take_over() == b"three"


def test_a_fenced_owner_may_take_over_again(case: Case, unique: str) -> None:
    first, second = case.open(), case.open()
    first.take_over()
    second.take_over()
    with pytest.raises(FencedError):
        first.publish([row(unique, 1)], b"stale")
    first.take_over()
    first.publish([row(unique, 2)], b"two")
    assert case.committed() == [(b"k", b"2")]


def test_nothing_can_be_published_before_taking_over(case: Case, unique: str) -> None:
    with pytest.raises(UnknownOutcomeError):
        case.open().publish([row(unique, 1)], b"one")


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


def test_a_refused_record_aborts_its_transaction_and_the_rest_can_go_again(
    properties: dict[str, object], unique: str
) -> None:
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    rows = [row(unique, 1), row(unique, 2, value=b"x" * 2_000_000), row(unique, 3)]
    with pytest.raises(RejectedError, match=r"row 2 to topic .*MSG_SIZE_TOO_LARGE"):
        log.publish(rows, b"all")
    log.publish([rows[0], rows[2]], b"rest")
    assert [record.value for record in read_back(properties, unique)] == [b"1", b"3"]
    assert KafkaShardLog(properties, group=unique).take_over() == b"rest"


def test_rows_with_and_without_headers_keep_their_order(properties: dict[str, object], unique: str) -> None:
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    rows = [row(unique, id, headers=(("h", b"v"),) if id % 3 == 0 else ()) for id in range(1, 100)]
    log.publish(rows, b"")
    assert [record.value for record in read_back(properties, unique)] == [str(id).encode() for id in range(1, 100)]


def test_rows_of_every_form_arrive_as_they_are_and_in_order(properties: dict[str, object], unique: str) -> None:
    ensure_topic(properties, unique, 3)
    plain = OutboxRow(1, unique, b"k", b"1", (), 2, None)
    rows = [
        plain,
        plain._replace(id=2, value=None),
        plain._replace(id=3, value=b""),
        plain._replace(id=4, value=b"4", headers=(("h", None),)),
        plain._replace(id=5, value=b"5", timestamp_ms=1_700_000_000_000),
        plain._replace(id=6, value=b"6", key=None, partition=1),
        plain._replace(id=7, value=b"7"),
    ]
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    log.publish(rows, b"")
    found = sorted(read_back(properties, unique), key=lambda record: (-record.partition, record.offset))
    assert [record.value for record in found] == [b"1", None, b"", b"4", b"5", b"7", b"6"]
    assert found[3].headers == (("h", None),)
    assert found[4].timestamp_ms == 1_700_000_000_000
    assert (found[-1].key, found[-1].partition) == (None, 1)


def test_whole_number_keys_go_by_modulo_where_the_topic_says_so(properties: dict[str, object], unique: str) -> None:
    ensure_topic(properties, unique, 3)
    log = KafkaShardLog(properties, group=unique, partitioners={unique: Partitioner.ID_MODULO})
    log.take_over()
    log.publish([row(unique, id, key=str(id).encode()) for id in range(40)], b"")
    found = list(read_back(properties, unique))
    assert [int(record.key or b"") % 3 for record in found] == [record.partition for record in found]
    assert len(found) == 40


def test_the_marker_is_found_behind_many_aborted_transactions(properties: dict[str, object], unique: str) -> None:
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    log.publish([row(unique, 1)], b"kept")
    for _ in range(40):
        with pytest.raises(RejectedError):
            log.publish([row(unique, 2, value=b"x" * 2_000_000)], b"aborted")
    assert KafkaShardLog(properties, group=unique).take_over() == b"kept"
