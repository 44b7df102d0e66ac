"""Every shard log, fenced or not, carries rows as they are and in order, once it has taken over."""

from __future__ import annotations

import pytest

from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner
from tests.contract.shard_log.making import FENCED, UNFENCED, Case, open_log, row

every_log = pytest.mark.parametrize("case", [*FENCED, *UNFENCED], indirect=True)
both_on_kafka = pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])


@every_log
def test_a_shard_that_was_never_owned_has_no_marker(case: Case) -> None:
    assert case.open().take_over() is None


@every_log
def test_nothing_can_be_published_before_taking_over(case: Case, unique: str) -> None:
    with pytest.raises(UnknownOutcomeError):
        require_delivered(case.open().publish([row(unique, 1)], b"one"))


@pytest.mark.full
@every_log
def test_nothing_can_be_published_after_closing_until_it_takes_over_again(case: Case, unique: str) -> None:
    log = case.open()
    log.take_over()
    require_delivered(log.publish([row(unique, 1)], b"one"))
    log.close()
    log.close()
    with pytest.raises(UnknownOutcomeError):
        require_delivered(log.publish([row(unique, 2)], b"two"))
    log.take_over()
    require_delivered(log.publish([row(unique, 2)], b"two"))
    assert case.delivered() == [(b"k", b"1"), (b"k", b"2")]


@pytest.mark.full
@every_log
def test_batches_arrive_whole_and_one_after_the_other(case: Case, unique: str) -> None:
    log = case.open()
    log.take_over()
    for start in range(0, 60, 20):
        require_delivered(log.publish([row(unique, id) for id in range(start, start + 20)], b""))
    require_delivered(log.publish((), b"a marker alone"))
    assert case.delivered() == [(b"k", str(id).encode()) for id in range(60)]


@pytest.mark.full
@both_on_kafka
def test_rows_with_and_without_headers_keep_their_order(
    properties: dict[str, object], unique: str, fenced: bool
) -> None:
    log = open_log(properties, unique, fenced=fenced)
    log.take_over()
    rows = [row(unique, id, headers=(("h", b"v"),) if id % 3 == 0 else ()) for id in range(1, 100)]
    require_delivered(log.publish(rows, b""))
    assert [record.value for record in read_back(properties, unique)] == [str(id).encode() for id in range(1, 100)]


@both_on_kafka
def test_rows_of_every_form_arrive_as_they_are_and_in_order(
    properties: dict[str, object], unique: str, fenced: bool
) -> None:
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
    log = open_log(properties, unique, fenced=fenced)
    log.take_over()
    require_delivered(log.publish(rows, b""))
    found = sorted(read_back(properties, unique), key=lambda record: (-record.partition, record.offset))
    assert [record.value for record in found] == [b"1", None, b"", b"4", b"5", b"7", b"6"]
    assert found[3].headers == (("h", None),)
    assert found[4].timestamp_ms == 1_700_000_000_000
    assert (found[-1].key, found[-1].partition) == (None, 1)


@both_on_kafka
def test_whole_number_keys_go_by_modulo_where_the_topic_says_so(
    properties: dict[str, object], unique: str, fenced: bool
) -> None:
    ensure_topic(properties, unique, 3)
    log = open_log(properties, unique, fenced=fenced, partitioners={unique: Partitioner.ID_MODULO})
    log.take_over()
    require_delivered(log.publish([row(unique, id, key=str(id).encode()) for id in range(40)], b""))
    found = list(read_back(properties, unique))
    assert [int(record.key or b"") % 3 for record in found] == [record.partition for record in found]
    assert len(found) == 40
