"""The decisions of the strategy topic-lock, as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.message import OutboxRow
from inorder.relay.stores.ports import TopicBacklog
from inorder.relay.topic_lock_batch import Topics, compact, includes, must_renew, oldest_wait

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def row(id: int, key: bytes | None, flaw: str = "") -> OutboxRow:
    return OutboxRow(id, "t", key, b"v", (), None, None, flaw)


@pytest.mark.parametrize(
    ("topics", "topic", "among"),
    [(frozenset(), "t", False), (frozenset({"t"}), "t", True), (frozenset({"u"}), "t", False), ("all", "t", True)],
)
def test_topics_are_named_or_all(topics: Topics, topic: str, among: bool) -> None:
    assert includes(topics, topic) is among


@pytest.mark.parametrize(("age", "asks"), [(0, False), (29.9, False), (30, True), (70, True), (-1, False)])
def test_a_lock_is_asked_for_when_half_its_time_is_over(age: float, asks: bool) -> None:
    assert must_renew(100 + age, 100, 60) is asks


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], {}),
        ([b"a", b"b", b"a"], {2: [2], 3: [1, 3]}),
        ([b"a", b"a", b"a"], {3: [1, 2, 3]}),
        ([b"a", b"b", b"c"], {1: [1], 2: [2], 3: [3]}),
        ([None, None, b"a", None, b"a"], {1: [1], 2: [2], 4: [4], 5: [3, 5]}),
        ([b"", None, b""], {2: [2], 3: [1, 3]}),
    ],
)
def test_the_last_message_of_a_key_stands_for_the_earlier_ones(
    keys: list[bytes | None], expected: dict[int, list[int]]
) -> None:
    found = compact([row(number, key) for number, key in enumerate(keys, 1)])
    assert found == expected
    assert list(found) == sorted(found), "in id order"


def test_a_batch_with_a_malformed_message_is_not_compacted() -> None:
    assert compact([row(1, b"a"), row(2, b"a", "no"), row(3, b"a")]) == {1: [1], 2: [2], 3: [3]}


@given(st.lists(st.sampled_from([b"a", b"b", b"c", None])))
def test_every_message_is_stood_for_once_and_by_none_before_it(keys: list[bytes | None]) -> None:
    rows = [row(number, key) for number, key in enumerate(keys, 1)]
    found = compact(rows)
    assert sorted(id for ids in found.values() for id in ids) == [each.id for each in rows]
    assert all(max(ids) == id for id, ids in found.items())


def ago(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("messages", "oldest", "processed", "wait"),
    [
        (0, None, None, 0),
        (0, None, 5, 0),
        (3, 5, None, 5),
        (3, 5, 9, 5),
        (3, 9, 5, 5),
        (3, None, 5, 5),
        (3, None, None, 0),
        (3, -5, None, 0),
    ],
)
def test_a_topic_waits_since_its_oldest_message_or_since_it_was_last_sent_to_the_end(
    messages: int, oldest: float | None, processed: float | None, wait: float
) -> None:
    state = TopicBacklog("t", messages, ago(oldest), ago(processed))
    assert oldest_wait(state, NOW) == wait
