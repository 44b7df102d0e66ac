"""A relay goes by the markers of its own outbox, and by those of no other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inorder.kafka.shard_log import Delivered, Delivery, require_delivered
from inorder.model.errors import ConfigurationError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.marker import Marker, SigningShardLog
from inorder.relay.stores.ports import Exceeding

MARKER = Marker(((1, 3), (7, 7)), 4, Exceeding(7, 5, "too-large", "it has 2 MB", parks=True))


class Topic:
    """Keeps the last marker, as the broker does."""

    def __init__(self, marker: bytes | None = None) -> None:
        self.marker = marker
        self.closed = 0

    def take_over(self) -> bytes | None:
        return self.marker

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        assert not rows
        self.marker = marker
        return Delivered()

    def close(self) -> None:
        self.closed += 1


def signing(topic: Topic, identity: str, *, is_restored: bool = False) -> SigningShardLog:
    return SigningShardLog(topic, lambda: identity, "orders", is_restored=is_restored)


def test_the_next_owner_of_the_same_outbox_finds_the_marker_as_it_was() -> None:
    topic = Topic()
    log = signing(topic, "a")
    assert log.take_over() is None
    for marker in (MARKER, Marker()):
        require_delivered(log.publish((), marker.encode()))
        assert Marker.decode(signing(topic, "a").take_over()) == marker


def test_another_outbox_is_refused_before_anything_is_purged_and_the_marker_stays() -> None:
    topic = Topic()
    owner = signing(topic, "a")
    owner.take_over()
    require_delivered(owner.publish((), MARKER.encode()))
    with pytest.raises(ConfigurationError, match="'orders' are those of another outbox") as caught:
        signing(topic, "b").take_over()
    assert "inorder relay reshard --restored" in (caught.value.hint or "")
    assert Marker.decode(owner.take_over()) == MARKER


def test_one_that_is_said_to_be_restored_goes_on_and_signs_anew() -> None:
    topic = Topic()
    owner = signing(topic, "a")
    owner.take_over()
    require_delivered(owner.publish((), MARKER.encode()))
    restored = signing(topic, "b", is_restored=True)
    restored.take_over()
    require_delivered(restored.publish((), Marker().encode()))
    assert Marker.decode(signing(topic, "b").take_over()) == Marker()
    with pytest.raises(ConfigurationError):
        owner.take_over()


def test_a_marker_of_an_earlier_version_is_taken_at_its_word() -> None:
    assert Marker.decode(signing(Topic(MARKER.encode()), "a").take_over()) == MARKER


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"[1]", b'"text"', b"1"])
def test_what_cannot_be_read_is_left_to_whoever_decodes_it(damaged: bytes) -> None:
    assert signing(Topic(damaged), "a").take_over() == damaged


def test_a_marker_that_is_taken_over_and_published_again_is_signed_once() -> None:
    topic = Topic()
    log = signing(topic, "a")
    log.take_over()
    require_delivered(log.publish((), MARKER.encode()))
    for _ in range(3):
        require_delivered(log.publish((), log.take_over() or b""))
    assert topic.marker is not None
    assert topic.marker.count(b'"outbox"') == 1
    assert Marker.decode(topic.marker) == MARKER


def test_closing_drops_the_producer() -> None:
    topic = Topic()
    signing(topic, "a").close()
    assert topic.closed == 1
