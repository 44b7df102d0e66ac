"""Without transactions nothing overtakes a refused record, what arrived is known, and an outage repeats nothing."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from inorder.embedded import Kafka
from inorder.kafka.first_contact import FirstContact
from inorder.kafka.idempotent_log import IdempotentShardLog
from inorder.kafka.read_back import read_back
from inorder.kafka.topics import ensure_topic
from inorder.model.errors import RejectedError, TransientError, UnknownOutcomeError
from inorder.ports.outbox_store import OutboxRow
from tests.conftest import Eventually
from tests.contract.shard_log.making import row

LIMIT = 20_000
LARGE = random.Random(1).randbytes(2 * LIMIT)  # nothing that compression could save
MANY = 500


@pytest.fixture
def log(properties: dict[str, object], unique: str) -> Iterator[IdempotentShardLog]:
    """A log that packs few records into a request, so that many requests are in flight at once."""
    ensure_topic(properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    found = IdempotentShardLog({**properties, "batch.size": 5_000})
    found.take_over()
    yield found
    found.close()


def numbered(topic: str, bad: int) -> list[OutboxRow]:
    """Many rows of one key, one of them too large for the topic."""
    return [row(topic, id, value=LARGE if id == bad else b"%d " % id + b"x" * 200) for id in range(1, MANY + 1)]


def numbers(properties: dict[str, object], topic: str) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in read_back(properties, topic)]


@pytest.mark.parametrize("bad", [1, 2, 100, MANY])
@pytest.mark.parametrize("is_known", [True, False], ids=["known producer", "new producer"])
def test_none_of_many_records_in_flight_overtakes_a_refused_one(
    log: IdempotentShardLog, properties: dict[str, object], unique: str, bad: int, is_known: bool
) -> None:
    """A broker takes any record of a producer that is new to a partition, also one behind a record that it refused."""
    if is_known:
        log.publish([row(unique, 0)], b"")
    before = numbers(properties, unique) if is_known else []
    rows = numbered(unique, bad)
    with pytest.raises(RejectedError, match="MSG_SIZE_TOO_LARGE") as caught:
        log.publish(rows, b"")
    assert caught.value.row_id == bad
    assert numbers(properties, unique) == before + list(range(1, bad))
    assert caught.value.delivered_ids == set(range(1, bad)), "what arrived is known"
    log.publish([each for each in rows if each.id > bad], b"")
    assert numbers(properties, unique) == before + [id for id in range(1, MANY + 1) if id != bad]


def test_rows_of_other_partitions_may_arrive_and_are_named(properties: dict[str, object], unique: str) -> None:
    ensure_topic(properties, unique, 2, {"max.message.bytes": str(LIMIT)})
    log = IdempotentShardLog(properties)
    log.take_over()
    rows = [row(unique, id, value=LARGE if id == 4 else None)._replace(partition=id % 2) for id in range(1, 9)]
    with pytest.raises(RejectedError) as caught:
        log.publish(rows, b"")
    found = {int(record.value or b"") for record in read_back(properties, unique)}
    assert caught.value.delivered_ids == found
    assert not found & {4, 6, 8}
    log.publish([each for each in rows if each.id not in found | {4}], b"")
    assert sorted(int(record.value or b"") for record in read_back(properties, unique)) == [1, 2, 3, 5, 6, 7, 8]


def test_a_record_that_the_client_finds_too_large_stops_all_behind_it(
    log: IdempotentShardLog, properties: dict[str, object], unique: str
) -> None:
    rows = [row(unique, id, value=b"x" * 2_000_000 if id == 3 else None) for id in range(1, 6)]
    with pytest.raises(RejectedError, match=r"row 3 to topic .*MSG_SIZE_TOO_LARGE") as caught:
        log.publish(rows, b"")
    assert caught.value.row_id == 3
    assert caught.value.delivered_ids == {1, 2}
    assert numbers(properties, unique) == [1, 2]


def test_the_guilty_one_of_a_refused_request_is_found_by_sending_singly(
    properties: dict[str, object], unique: str
) -> None:
    ensure_topic(properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    log = IdempotentShardLog(properties)
    log.take_over()
    log.publish([row(unique, 0)], b"")
    rows = numbered(unique, 100)
    delivered: set[int] = set()
    for _ in range(2):
        with pytest.raises(RejectedError) as caught:
            log.publish([each for each in rows if each.id not in delivered], b"")
        delivered |= caught.value.delivered_ids
    assert caught.value.row_id == 100
    assert numbers(properties, unique) == list(range(100))


def test_records_that_are_too_large_only_together_go_through_singly(properties: dict[str, object], unique: str) -> None:
    ensure_topic(properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    log = IdempotentShardLog(properties)
    log.take_over()
    noise = random.Random(2)
    rows = [row(unique, id, value=b"%d " % id + noise.randbytes(2_000)) for id in range(1, 51)]
    with pytest.raises(RejectedError) as caught:
        log.publish(rows, b"")
    assert caught.value.row_id is None
    log.publish([each for each in rows if each.id not in caught.value.delivered_ids], b"")
    assert numbers(properties, unique) == list(range(1, 51))


def test_an_invalid_topic_is_an_error_of_its_row(log: IdempotentShardLog, unique: str) -> None:
    with pytest.raises(RejectedError) as caught:
        log.publish([row(unique, 1), row("not/a/topic", 2)], b"")
    assert caught.value.row_id == 2


def test_an_outage_is_waited_out_without_repeating_anything(
    tmp_path: Path, unique: str, eventually: Eventually
) -> None:
    with Kafka(tmp_path) as broker:
        properties: dict[str, object] = {"bootstrap.servers": broker.bootstrap}
        ensure_topic(properties, unique, 1)
        log = IdempotentShardLog(properties)
        log.take_over()
        log.publish([row(unique, 0)], b"")
        rows = [row(unique, id) for id in range(1, 100)]
        os.kill(broker.pids[0], signal.SIGSTOP)
        try:
            with pytest.raises(TransientError, match="Of 99 records 99 are not acknowledged yet") as caught:
                log.publish(rows, b"")
            assert caught.value.delivered_ids == frozenset()
            with pytest.raises(UnknownOutcomeError, match="under way"):
                log.publish(rows[1:], b"")
        finally:
            os.kill(broker.pids[0], signal.SIGCONT)
        eventually(lambda: arrives(log, rows))
        assert numbers(properties, unique) == list(range(100))
        log.close()


def arrives(log: IdempotentShardLog, rows: list[OutboxRow]) -> bool:
    try:
        log.publish(rows, b"")
    except TransientError:
        return False
    return True


def test_a_closed_log_sends_nothing_of_what_it_had_in_its_queue(tmp_path: Path, unique: str) -> None:
    with Kafka(tmp_path) as broker:
        properties: dict[str, object] = {"bootstrap.servers": broker.bootstrap}
        ensure_topic(properties, unique, 1)
        log = IdempotentShardLog(properties)
        log.take_over()
        log.publish([row(unique, 0)], b"")
        broker.kill()
        with pytest.raises(TransientError):
            log.publish([row(unique, 1)], b"")
        log.close()
        broker.start()
        log.take_over()
        log.publish([row(unique, 2)], b"")
        assert numbers(properties, unique) == [0, 2]
        log.close()


def test_a_silent_hour_makes_the_first_record_travel_alone_again() -> None:
    """A broker forgets producers that were silent for long, and then takes any record of theirs for the first."""
    now = [0.0]
    contact = FirstContact({}, clock=lambda: now[0])
    rows = [row("t", id, key=key) for id, key in enumerate([b"a", b"b", b"a", b"c"])]
    first, rest = contact.waves(rows, lambda _: 1)
    assert ([each.id for each in first], [each.id for each in rest]) == ([0], [1, 2, 3])
    assert len(contact.waves(rows, lambda _: 1)) == 2, "not yet acknowledged"
    contact.acknowledged(first)
    assert contact.waves(rows, lambda _: 1) == [rows]
    now[0] = 3601.0
    assert len(contact.waves(rows, lambda _: 1)) == 2
