"""A fenced shard log stops earlier owners and commits records together with their marker."""

from __future__ import annotations

import pytest

from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import FencedError, RejectedError
from inorder.relay.stores.kafka_log import KafkaShardLog
from tests.contract.shard_log.making import FENCED, Case, row

every_fenced_log = pytest.mark.parametrize("case", FENCED, indirect=True)


@pytest.mark.full
@every_fenced_log
def test_the_next_owner_finds_the_last_committed_marker(case: Case, unique: str) -> None:
    first = case.open()
    first.take_over()
    require_delivered(first.publish([row(unique, 1)], b"one"))
    require_delivered(first.publish([row(unique, 2)], b"two"))
    assert case.open().take_over() == b"two"
    assert case.delivered() == [(b"k", b"1"), (b"k", b"2")]


@every_fenced_log
def test_an_owner_that_was_taken_over_commits_nothing_more(case: Case, unique: str) -> None:
    first, second = case.open(), case.open()
    first.take_over()
    require_delivered(first.publish([row(unique, 1)], b"one"))
    assert second.take_over() == b"one"
    with pytest.raises(FencedError):
        require_delivered(first.publish([row(unique, 2)], b"stale"))
    require_delivered(second.publish([row(unique, 3)], b"three"))
    assert case.delivered() == [(b"k", b"1"), (b"k", b"3")]
    assert case.open().take_over() == b"three"


@every_fenced_log
def test_a_fenced_owner_may_take_over_again(case: Case, unique: str) -> None:
    first, second = case.open(), case.open()
    first.take_over()
    second.take_over()
    with pytest.raises(FencedError):
        require_delivered(first.publish([row(unique, 1)], b"stale"))
    first.take_over()
    require_delivered(first.publish([row(unique, 2)], b"two"))
    assert case.delivered() == [(b"k", b"2")]


@every_fenced_log
@pytest.mark.parametrize("before", [1, 2], ids=["the second is next", "the first is next"])
def test_a_take_over_that_dies_between_its_two_ids_stops_the_owner_within_one_batch(
    case: Case, unique: str, before: int
) -> None:
    """The owner may commit once more through the id that it still has; the next owner finds that in the marker."""
    first = case.open()
    first.take_over()
    for number in range(1, before + 1):
        require_delivered(first.publish([row(unique, number)], str(number).encode()))
    case.begin_take_over()
    if before == 1:
        require_delivered(first.publish([row(unique, 2)], b"2"))
    with pytest.raises(FencedError):
        require_delivered(first.publish([row(unique, 3)], b"3"))
    second = case.open()
    assert second.take_over() == b"2"
    require_delivered(second.publish([row(unique, 3)], b"3"))
    assert case.delivered() == [(b"k", b"1"), (b"k", b"2"), (b"k", b"3")]


def test_a_refused_record_aborts_its_transaction_and_the_rest_can_go_again(
    properties: dict[str, object], unique: str
) -> None:
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    rows = [row(unique, 1), row(unique, 2, value=b"x" * 2_000_000), row(unique, 3)]
    with pytest.raises(RejectedError, match=r"row 2 to topic .*MSG_SIZE_TOO_LARGE"):
        require_delivered(log.publish(rows, b"all"))
    require_delivered(log.publish([rows[0], rows[2]], b"rest"))
    assert [record.value for record in read_back(properties, unique)] == [b"1", b"3"]
    assert KafkaShardLog(properties, group=unique).take_over() == b"rest"


def test_the_marker_is_found_behind_many_aborted_transactions(properties: dict[str, object], unique: str) -> None:
    log = KafkaShardLog(properties, group=unique)
    log.take_over()
    require_delivered(log.publish([row(unique, 1)], b"kept"))
    for _ in range(40):
        with pytest.raises(RejectedError):
            require_delivered(log.publish([row(unique, 2, value=b"x" * 2_000_000)], b"aborted"))
    assert KafkaShardLog(properties, group=unique).take_over() == b"kept"
