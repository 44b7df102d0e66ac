"""The backend `memory` and its assertions, as tests of applications use them."""

from __future__ import annotations

import threading

import pytest

import inorder
from inorder.model.errors import ValidationError
from inorder.model.message import Message
from inorder.outbox.memory import Published


@pytest.fixture
def published() -> Published:
    found = Published()
    found.add(Message("orders", key=42, value={"id": 42}, headers={"trace": "x"}))
    found.add(Message("orders", key="43", value=None))
    found.add(Message("users", key="1", value="text"))
    return found


def test_messages_are_kept_in_order_and_by_topic(published: Published) -> None:
    assert [message.key for message in published.messages()] == [42, "43", "1"]
    assert [message.key for message in published.messages("orders")] == [42, "43"]
    published.clear()
    assert published.messages() == []


def test_what_is_asserted_is_compared_as_kafka_would_carry_it(published: Published) -> None:
    assert published.assert_published("orders").key == 42
    assert published.assert_published("orders", key="42", value=b'{"id":42}').key == 42
    assert published.assert_published("orders", headers=[("trace", b"x")]).key == 42
    assert published.assert_published("orders", key=43, value=None).key == "43"
    published.assert_published("orders", times=2)


@pytest.mark.parametrize(
    "wanted",
    [
        {"topic": "nobody"},
        {"topic": "orders", "key": 7},
        {"topic": "orders", "value": None, "key": 42},
        {"topic": "orders", "headers": {}, "key": 42},
        {"topic": "orders", "times": 1},
        {"topic": "orders", "times": 0},
    ],
)
def test_what_is_missing_fails_with_what_is_there(published: Published, wanted: dict[str, object]) -> None:
    with pytest.raises(AssertionError) as caught:
        published.assert_published(**wanted)  # type: ignore[arg-type]  # one of each kind
    assert repr(wanted["topic"]) in str(caught.value)
    if wanted["topic"] == "orders":
        assert "Message(topic='orders', key='43'" in str(caught.value)


def test_nothing_is_nothing(published: Published) -> None:
    published.assert_nothing_published("payments")
    with pytest.raises(AssertionError, match="users"):
        published.assert_nothing_published("users")
    published.clear()
    published.assert_nothing_published()


def test_a_long_list_is_cut_short() -> None:
    published = Published()
    for number in range(30):
        published.add(Message("t", value=number))
    with pytest.raises(AssertionError, match="20 more"):
        published.assert_nothing_published()


@pytest.mark.usefixtures("empty_place")
def test_a_publisher_with_this_backend_checks_messages_and_connects_nowhere() -> None:
    settings = inorder.Settings.load(publisher={"backend": "memory"})
    before = threading.active_count()
    with inorder.Publisher(settings) as publisher:
        publisher.publish(Message("orders", key=1, value={"id": 1}))
        with pytest.raises(ValidationError, match=r"messages\[1\]\.key"):
            publisher.publish_list([Message("orders", value=2), Message("orders", key=1.5)])  # type: ignore[arg-type]  # that is the point
        with pytest.raises(ValidationError, match="not a list"):
            publisher.publish_list(Message("orders"))  # type: ignore[call-overload]  # that is the point
        publisher.published.assert_published("orders", key=1, value={"id": 1}, times=1)
    assert len(publisher.published.messages()) == 1
    assert threading.active_count() == before
