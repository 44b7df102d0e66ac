"""A dead letter that is sent again is committed only after nothing was found against it, whatever arrives late."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inorder.engines.slice_work import TopicSource
from inorder.pipeline.stores.conditional_log import KafkaConditionalLog
from inorder.pipeline.stores.ports import StoredLetter
from tests.fakes.transactions import MemoryTransactions, install

TOPIC = "orders"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Source:
    """Everything before a record is final at once."""

    def extents(self, _topic: str) -> dict[int, Any]:
        return {0: SimpleNamespace(end=0)}


def letter(value: bytes) -> StoredLetter:
    return StoredLetter("upsert", TOPIC, 0, 7, 0, "code", "detail", b"k", value, NOW, NOW)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryTransactions:
    made = MemoryTransactions()
    install(made, monkeypatch)
    return made


def test_a_late_commit_of_one_letter_does_not_commit_the_next_before_it_was_examined(
    broker: MemoryTransactions,
) -> None:
    log = KafkaConditionalLog({}, cast("TopicSource", Source()), "upsert")
    broker.holds = 1
    assert log.send_unless(letter(b"1"), lambda _offset: None) == 0
    seen: list[list[bytes]] = []

    def examine(_offset: int) -> None:
        broker.deliver_late()
        seen.append(broker.values(TOPIC))

    assert log.send_unless(letter(b"2"), examine) == 0
    assert seen == [[b"1"]]
    assert broker.values(TOPIC) == [b"1", b"2"]


def test_letters_that_are_answered_at_once_share_one_producer(broker: MemoryTransactions) -> None:
    log = KafkaConditionalLog({}, cast("TopicSource", Source()), "upsert")
    for value in (b"1", b"2", b"3"):
        log.send_unless(letter(value), lambda _offset: None)
    assert len(broker.clients) == 1
