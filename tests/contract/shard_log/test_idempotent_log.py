"""Without transactions nothing overtakes a refused record, what arrived is known, and an outage repeats nothing."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest

from inorder.embedded import Kafka
from inorder.kafka import idempotent_producer
from inorder.kafka.admin import ensure_topic
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import Delivered, Incomplete, require_delivered
from inorder.model.errors import RejectedError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from tests.conftest import Eventually
from tests.contract.shard_log.making import row
from tests.selection import few

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


def incomplete(log: IdempotentShardLog, rows: list[OutboxRow]) -> Incomplete:
    delivery = log.publish(rows, b"")
    assert isinstance(delivery, Incomplete)
    return delivery


def numbers(properties: dict[str, object], topic: str) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in read_back(properties, topic)]


@pytest.mark.parametrize("bad", few([1, 2, 100, MANY], 2))
@pytest.mark.parametrize("is_known", [True, False], ids=["known producer", "new producer"])
def test_none_of_many_records_in_flight_overtakes_a_refused_one(
    log: IdempotentShardLog, properties: dict[str, object], unique: str, bad: int, is_known: bool
) -> None:
    """A broker takes any record of a producer that is new to a partition, also one behind a record that it refused."""
    if is_known:
        require_delivered(log.publish([row(unique, 0)], b""))
    before = numbers(properties, unique) if is_known else []
    rows = numbered(unique, bad)
    delivery = incomplete(log, rows)
    with pytest.raises(RejectedError, match="MSG_SIZE_TOO_LARGE") as caught:
        raise delivery.error
    assert caught.value.row_id == bad
    assert numbers(properties, unique) == before + list(range(1, bad))
    assert delivery.delivered == set(range(1, bad)), "what arrived is known"
    require_delivered(log.publish([each for each in rows if each.id > bad], b""))
    assert numbers(properties, unique) == before + [id for id in range(1, MANY + 1) if id != bad]


def test_rows_of_other_partitions_may_arrive_and_are_named(properties: dict[str, object], unique: str) -> None:
    ensure_topic(properties, unique, 2, {"max.message.bytes": str(LIMIT)})
    log = IdempotentShardLog(properties, grace_seconds=30)  # so that every answer is waited for
    log.take_over()
    rows = [row(unique, id, value=LARGE if id == 4 else None)._replace(partition=id % 2) for id in range(1, 9)]
    delivery = incomplete(log, rows)
    # One or the other, as the client happened to pack them.
    assert isinstance(delivery.error, RejectedError | TransientError)
    found = {int(record.value or b"") for record in read_back(properties, unique)}
    assert delivery.delivered == found
    assert not found & {4, 6, 8}
    require_delivered(log.publish([each for each in rows if each.id not in found | {4}], b""))
    assert sorted(int(record.value or b"") for record in read_back(properties, unique)) == [1, 2, 3, 5, 6, 7, 8]


def test_a_record_that_the_client_finds_too_large_stops_all_behind_it(
    log: IdempotentShardLog, properties: dict[str, object], unique: str
) -> None:
    rows = [row(unique, id, value=b"x" * 2_000_000 if id == 3 else None) for id in range(1, 6)]
    delivery = incomplete(log, rows)
    with pytest.raises(RejectedError, match=r"row 3 to topic .*MSG_SIZE_TOO_LARGE") as caught:
        raise delivery.error
    assert caught.value.row_id == 3
    assert delivery.delivered == {1, 2}
    assert numbers(properties, unique) == [1, 2]


def test_an_invalid_topic_is_an_error_of_its_row(log: IdempotentShardLog, unique: str) -> None:
    with pytest.raises(RejectedError) as caught:
        require_delivered(log.publish([row(unique, 1), row("not/a/topic", 2)], b""))
    assert caught.value.row_id == 2


@pytest.fixture
def fragile(own_broker: Kafka, unique: str) -> Iterator[IdempotentShardLog]:
    """A log on a broker of its own that has delivered row 0."""
    properties: dict[str, object] = {"bootstrap.servers": own_broker.bootstrap}
    ensure_topic(properties, unique, 1)
    log = IdempotentShardLog(properties)
    log.take_over()
    require_delivered(log.publish([row(unique, 0)], b""))
    yield log
    log.close()


def arrives(log: IdempotentShardLog, rows: list[OutboxRow]) -> bool:
    match log.publish(rows, b""):
        case Incomplete(TransientError()):
            return False
        case delivery:
            return delivery == Delivered()


@pytest.mark.full
def test_an_outage_is_waited_out_without_repeating_anything(
    own_broker: Kafka,
    fragile: IdempotentShardLog,
    unique: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row(unique, id) for id in range(1, 100)]
    monkeypatch.setattr(idempotent_producer, "PATIENCE_SECONDS", 1.0)
    os.kill(own_broker.pids[0], signal.SIGSTOP)
    try:
        delivery = incomplete(fragile, rows)
        with pytest.raises(TransientError, match="Of 99 records 99 are not acknowledged yet"):
            raise delivery.error
        assert (delivery.delivered, delivery.is_under_way) == (frozenset(), True)
        with pytest.raises(UnknownOutcomeError, match="under way"):
            require_delivered(fragile.publish(rows[1:], b""))
    finally:
        os.kill(own_broker.pids[0], signal.SIGCONT)
    eventually(lambda: arrives(fragile, rows))
    assert numbers({"bootstrap.servers": own_broker.bootstrap}, unique) == list(range(100))


@pytest.mark.full
def test_a_closed_log_sends_nothing_of_what_it_had_in_its_queue(
    own_broker: Kafka,
    fragile: IdempotentShardLog,
    unique: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idempotent_producer, "PATIENCE_SECONDS", 1.0)
    own_broker.kill()
    with pytest.raises(TransientError):
        require_delivered(fragile.publish([row(unique, 1)], b""))
    fragile.close()
    own_broker.start()
    fragile.take_over()
    eventually(lambda: arrives(fragile, [row(unique, 2)]))
    assert numbers({"bootstrap.servers": own_broker.bootstrap}, unique) == [0, 2]


@pytest.mark.full
def test_when_the_lease_ends_the_rest_of_the_batch_is_never_sent(
    own_broker: Kafka, unique: str, eventually: Eventually
) -> None:
    properties: dict[str, object] = {"bootstrap.servers": own_broker.bootstrap}
    ensure_topic(properties, unique, 1)
    is_ours = True
    looks = -100_000  # the first one may take its time: the broker has just begun

    def holds() -> bool:
        nonlocal looks
        looks += 1
        return is_ours and looks < 50

    log = IdempotentShardLog(properties, holds=holds)
    log.take_over()
    assert arrives(log, [row(unique, 0)])
    own_broker.kill()
    looks = 0
    delivery = incomplete(log, [row(unique, id) for id in range(1, 100)])
    with pytest.raises(TransientError, match="The lease is gone; 99 records of the batch are given up"):
        raise delivery.error
    assert (delivery.delivered, delivery.is_under_way) == (frozenset(), False)
    own_broker.start()
    is_ours = False
    with pytest.raises(TransientError, match="The lease is gone; 1 records"):
        require_delivered(log.publish([row(unique, 100)], b""))
    is_ours, looks = True, -100_000
    eventually(lambda: arrives(log, [row(unique, 200)]))
    log.close()
    assert numbers(properties, unique) == [0, 200]
