"""A subscription when servers do not answer, topics are missing, or partitions are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from inorder.journal import subscription
from inorder.journal.stores.ports import LogRecord, TopicTail
from inorder.model.errors import TopicUnavailableError, TransientError, UnreachableError
from inorder.model.message import Record
from inorder.testing.memory_journal import MemoryTail
from tests.unit.journal.subscribing import IDS, TOPIC, Topic, named


class FailingTail(MemoryTail):
    """A tail that fails the given number of times."""

    failures: list[Exception]

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        if self.failures:
            raise self.failures.pop(0)
        return super().poll(timeout_seconds)


def failing(topic: Topic, *failures: Exception) -> Topic:
    left = list(failures)
    usual = topic.log.tail

    def tail(name: str) -> TopicTail:
        found = usual(name)
        found.__class__ = FailingTail
        assert isinstance(found, FailingTail)
        found.failures = left
        return found

    topic.log.tail = tail  # type: ignore[assignment,method-assign]  # a fault in one place of a fake
    return topic


class GrowingTail(MemoryTail):
    """A tail of a topic that gets a second partition."""

    def partitions(self) -> Sequence[int]:
        return range(self._log.end("partitions", 0))


def test_partitions_that_are_added_are_read_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "LOOK_FOR_PARTITIONS_SECONDS", 0.0)
    topic = Topic(2)
    ids = {topic.log.partition_of(TOPIC, id.encode()): id for id in IDS}
    grow = Record("partitions", None, None, (), None, None)
    topic.log.write(grow, 0)
    usual = topic.log.tail

    def tail(name: str) -> TopicTail:
        found = usual(name)
        found.__class__ = GrowingTail
        return found

    topic.log.tail = tail  # type: ignore[assignment,method-assign]  # a topic that grows
    topic.append(ids[0], 1)
    topic.append(ids[1], 1)
    events = iter(topic.subscribe(idle_seconds=0.5))
    assert named([next(events)]) == [(ids[0], 1)]
    topic.log.write(grow, 0)
    assert named(events) == [(ids[1], 1)]


def test_a_server_that_does_not_answer_for_a_moment_is_asked_again() -> None:
    topic = failing(Topic(1), UnreachableError("gone"), TransientError("still gone"))
    topic.append("a", 1)
    assert topic.shown() == [("a", 1)]


def test_one_that_does_not_answer_for_long_is_told() -> None:
    topic = failing(Topic(1), UnreachableError("gone"))
    with pytest.raises(UnreachableError, match="gone"):
        topic.shown(timeout_seconds=0)


def test_a_topic_that_does_not_exist_is_told_at_once() -> None:
    topic = failing(Topic(1), TopicUnavailableError(TOPIC, "no such topic"))
    with pytest.raises(TopicUnavailableError):
        topic.shown()
