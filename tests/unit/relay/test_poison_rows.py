"""One row that makes anything fail in a way that no one foresaw is set aside with its key; the relay goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from inorder.kafka.sender import RowSender
from inorder.kafka.shard_log import Delivery
from inorder.kafka.topic_facts import KnownTopics
from inorder.model.errors import RejectedError, TransientError
from inorder.model.message import OutboxRow
from inorder.relay.loop import Suspects
from tests.conftest import Eventually
from tests.fakes.log import MemoryShardLog
from tests.unit.relay.running import World, running


class Bursting(MemoryShardLog):
    """A log that bursts at one value, and says nothing of the row."""

    bursts = 0
    relents = False

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        if any(row.value == b"poison" for row in rows) and not self.relents:
            self.bursts += 1
            raise ZeroDivisionError("division by zero")
        return super().publish(rows, marker)


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_the_key_of_a_row_that_no_log_can_publish_is_parked_with_the_reason(
    strategy: str, eventually: Eventually
) -> None:
    world = World()
    log = Bursting(world.broker)
    world.commit(*(("t", b"k%d" % number, b"fine") for number in range(30)))
    world.commit(("t", b"k", b"1"), ("t", b"k", b"poison"), ("t", b"k", b"3"))
    world.commit(*(("t", b"k%d" % number, b"fine") for number in range(30)))
    with running(world, strategy=strategy, log=log):
        ((row, exceeding),) = eventually(lambda: list(world.exceeded.rows.values()))
        eventually(lambda: len(world.sent()) == 61)
        assert (row.value, exceeding.parks) == (b"poison", True)
        assert "publishing it failed (ZeroDivisionError: division by zero)" in exceeding.reason
        log.relents = True
        world.exceeded.retry(row.id)
        eventually(lambda: world.outbox.count() == 0)
    assert [each.value for each in world.broker.records if each.key == b"k"] == [b"1", b"poison", b"3"]
    assert log.bursts < 20


def row(id: int, **fields: Any) -> OutboxRow:
    return OutboxRow(id, "t", b"k", b"v", (), None, None)._replace(**fields)


def test_suspects_are_halved_until_one_is_left_and_grow_when_they_are_innocent() -> None:
    rows, suspects = [row(id) for id in range(10)], Suspects()
    assert suspects.cut(rows) == (rows, [])
    suspects.failed(rows, ValueError("no"))
    assert suspects.cut(rows) == (rows[:5], rows[5:])
    suspects.succeeded(rows[:5])
    assert suspects.cut(rows[5:]) == (rows[5:], [])
    suspects.succeeded(rows[5:])
    assert suspects.most is None
    suspects.failed(rows[:1], ValueError("no"))
    assert [each.flaw for each in suspects.with_flaws(rows[:2])] == ["publishing it failed (ValueError: no)", ""]
    assert suspects.with_flaws(rows[:1]) == rows[:1], "a row that was repaired and retried is tried"


class Knowing:
    """What a sender asks of the topics, answered without a broker."""

    def require(self, *_: object) -> None:
        """Every topic can be written to."""

    def count(self, _topic: str) -> int:
        return 4


def send(rows: list[OutboxRow]) -> None:
    client = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    RowSender({}, cast("KnownTopics", Knowing())).send(client, rows)


@pytest.mark.parametrize(
    "poison",
    [
        row(7, topic="t\0t", headers=(("a", b"b"),)),
        row(7, partition=2**40, headers=(("a", b"b"),)),
        row(7, timestamp_ms=2**70),
        row(7, key=5, headers=(("a", b"b"),)),
    ],
    ids=["NUL in topic", "partition", "timestamp", "key"],
)
def test_the_client_s_own_exceptions_are_refusals_of_the_row(poison: OutboxRow) -> None:
    with pytest.raises(RejectedError) as raised:
        send([row(6, headers=(("a", b"b"),)), poison])
    assert raised.value.row_id == 7


@pytest.mark.parametrize("poison", [row(7, topic="t\0t"), row(7, key=5), row(7, value=5)])
def test_where_the_client_does_not_say_which_row_it_was_the_batch_is_refused(poison: OutboxRow) -> None:
    with pytest.raises(RejectedError) as raised:
        send([row(6), poison])
    assert raised.value.row_id in (None, 7)
    with pytest.raises(RejectedError) as raised:
        send([poison])
    assert raised.value.row_id == 7


def test_a_lack_of_memory_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Knowing, "require", fail)
    with pytest.raises(TransientError):
        send([row(1)])
