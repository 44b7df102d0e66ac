"""What becomes of a batch that is compacted, or in which a message is refused."""

from __future__ import annotations

import pytest

from inorder.relay.options import Policy
from tests.unit.relay.topics import Post, Refusing

KEYED = [("t", b"a", b"1"), ("t", b"b", b"2"), ("t", b"a", b"3"), ("t", None, b"4"), ("t", None, b"5")]


@pytest.mark.parametrize("topics", ["all", frozenset({"t"})])
def test_a_compacted_topic_gets_the_last_message_of_each_key(topics: object) -> None:
    post = Post()
    post.write(*KEYED)
    worker = post.round(compact_topics=topics)
    assert (post.sent(), post.left()) == ([b"2", b"3", b"4", b"5"], [])
    assert (worker.progress.published, worker.progress.processed) == (4, 5)


def test_other_topics_are_not_compacted() -> None:
    post = Post()
    post.write(*KEYED)
    post.round(compact_topics=frozenset({"u"}))
    assert post.sent() == [b"1", b"2", b"3", b"4", b"5"]


def test_when_the_message_that_stands_for_others_is_refused_they_are_sent() -> None:
    post = Post()
    post.write(("t", b"a", b"1"), ("t", b"b", b"2"), ("t", b"a", b"bad"))
    post.round(compact_topics="all", log=Refusing(post.broker, {b"bad"}), max_attempts=1)
    assert sorted(value or b"" for value in post.sent()) == [b"1", b"2"]
    assert [row.value for row, _ in post.tables.exceeded.values()] == [b"bad"]
    assert post.left() == []


POISONED = [("t", b"a", b"1"), ("t", b"k", b"bad"), ("t", b"b", b"2"), ("t", b"k", b"3"), ("t", b"a", b"4")]


@pytest.mark.parametrize("names_row", [True, False])
@pytest.mark.parametrize(
    ("policy", "sent", "left"),
    [("park", [b"1", b"2", b"4"], [b"3"]), ("skip", [b"1", b"2", b"3", b"4"], [])],
)
def test_a_refused_message_is_set_aside_alone(
    policy: Policy, sent: list[bytes], left: list[bytes], names_row: bool
) -> None:
    """Whether the log names the guilty one or not; every other message is neither lost nor reordered."""
    post = Post()
    post.write(*POISONED)
    log = Refusing(post.broker, {b"bad"}, names_row=names_row)
    post.round(log=log, policy=lambda _topic: policy)
    assert (sorted(value or b"" for value in post.sent()), post.left()) == (sent, left)
    assert post.sent().index(b"1") < post.sent().index(b"4")
    [(row, exceeding)] = post.tables.exceeded.values()
    assert (row.value, exceeding.attempts, exceeding.parks) == (b"bad", 3, policy == "park")


def test_a_parked_key_goes_on_in_order_once_its_message_was_repaired() -> None:
    post = Post()
    _, bad, *_ = post.write(*POISONED)
    log = Refusing(post.broker, {b"bad"})
    post.round(log=log)
    post.write(("t", b"k", b"5"))
    post.round(log=log)
    assert post.left() == [b"3", b"5"]
    log.bad.clear()
    post.tables.retry(bad)
    post.round(log=log)
    assert post.sent()[-3:] == [b"bad", b"3", b"5"]


def test_the_policy_block_lets_the_topic_rest_with_everything_in_its_place() -> None:
    post = Post()
    post.write(*POISONED)
    post.round(log=Refusing(post.broker, {b"bad"}), policy=lambda _topic: "block")
    assert (post.sent(), post.left()) == ([b"1"], [b"bad", b"2", b"3", b"4"])
    assert post.tables.exceeded == {}
    assert post.tables.locks["t"].error


def test_a_malformed_message_is_set_aside_at_once() -> None:
    post = Post()
    post.tables.insert("t", b"k", b"1", flaw="partition_key is not UTF-8 text")
    post.write(("t", b"k", b"2"), ("t", b"a", b"3"))
    post.round()
    assert (post.sent(), post.left()) == ([b"3"], [b"2"])
    [(_, exceeding)] = post.tables.exceeded.values()
    assert "malformed: partition_key is not UTF-8 text" in exceeding.reason
