"""Errors of the client are told apart by their code, whatever their text."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from inorder.kafka.errors import meaning, row_error, topic_unavailable
from inorder.model.errors import (
    FencedError,
    InorderError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnreachableError,
)
from inorder.model.message import OutboxRow

ROW = OutboxRow(7, "orders", b"k", b"v", (), None, None)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicUnavailableError),
        (KafkaError._UNKNOWN_TOPIC, TopicUnavailableError),
        (KafkaError.LEADER_NOT_AVAILABLE, TopicUnavailableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicUnavailableError),
        (KafkaError.MSG_SIZE_TOO_LARGE, RejectedError),
        (KafkaError.INVALID_RECORD, RejectedError),
        (KafkaError.TOPIC_EXCEPTION, RejectedError),
        (KafkaError._TRANSPORT, TransientError),
        (KafkaError.NOT_ENOUGH_REPLICAS, TransientError),
    ],
)
def test_a_row_that_was_not_taken_has_its_topic_its_content_or_the_environment_to_blame(
    code: int, kind: type[InorderError]
) -> None:
    found = row_error(ROW, KafkaError(code))
    assert type(found) is kind
    assert "'orders'" in found.message
    if isinstance(found, RejectedError):
        assert found.row_id == 7
    if isinstance(found, TopicUnavailableError):
        assert found.topic == "orders"


def test_an_unavailable_topic_says_what_to_do() -> None:
    missing = topic_unavailable("orders", KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    closed = topic_unavailable("orders", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert "Create it" in missing.hint
    assert "permission to write" in closed.hint
    assert "TOPIC_AUTHORIZATION_FAILED" in closed.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, FencedError),
        (KafkaError.PRODUCER_FENCED, FencedError),
        (KafkaError._ALL_BROKERS_DOWN, UnreachableError),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, TransientError),
    ],
)
def test_what_an_error_means_is_decided_by_its_code(code: int, kind: type[InorderError]) -> None:
    found = meaning(KafkaError(code, "any words"), "Doing this")
    assert type(found) is kind
    assert found.message.startswith("Doing this: any words")


def test_what_is_no_error_of_the_client_is_waited_out() -> None:
    assert type(row_error(ROW, "queue full")) is TransientError
