"""Only a heartbeat of one's own counts, whatever else lies on the topic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import ConfigurationError
from inorder.relay.leadership.election import State
from inorder.relay.stores.kafka_lease import KafkaLeases, leader_topic, receive_deadline, sent_by


def test_a_heartbeat_of_our_own_tells_when_it_was_sent() -> None:
    assert sent_by("us", json.dumps({"name": "us", "sent": 12.5}).encode()) == 12.5


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\x00",
        b"not json",
        b"[]",
        b'"us"',
        b"{}",
        b'{"name": "them", "sent": 1}',
        b'{"name": "us"}',
        b'{"name": "us", "sent": "1"}',
        b'{"name": "us", "sent": null}',
        b'{"name": "us", "sent": true}',
        b'{"name": "us", "sent": NaN}',
        b'{"name": "us", "sent": 1e999}',
        b"[" * 100_000,
        b'{"name": "us", "sent": ' + b"[" * 1010 + b"]" * 1010 + b"}",
    ],
)
def test_anything_else_is_passed_over(value: bytes | None) -> None:
    assert sent_by("us", value) is None


@given(st.binary())
def test_no_bytes_make_the_reader_raise(value: bytes) -> None:
    assert sent_by("us", value) is None


@pytest.mark.parametrize(("session", "deadline"), [(6000, 5.0), ("6000", 5.0), (45_000, 5.0), (3000, 2.5), (1200, 1.0)])
def test_trust_ends_before_the_session_does(session: object, deadline: float) -> None:
    assert receive_deadline({"session.timeout.ms": session}) == pytest.approx(deadline)


def test_a_session_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r'kafka\."session.timeout.ms" = \'soon\''):
        KafkaLeases({"session.timeout.ms": "soon"}, group="g", owner="us")


def test_the_topic_is_named_after_the_group() -> None:
    assert leader_topic("orders") == "inorder.orders.leader"


def test_who_was_never_asked_stands_by_and_has_nothing_to_release() -> None:
    lease = KafkaLeases({}, group="g", owner="us").lease()
    assert lease.state is State.STANDBY
    assert lease.arbitrates()
    lease.release()


@pytest.mark.parametrize("shard", [-1, 2])
def test_a_shard_that_does_not_exist_has_no_lease(shard: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"no shard {shard}: relay\.shards = 2"):
        KafkaLeases({}, group="g", owner="us", shards=2).lease(shard)
