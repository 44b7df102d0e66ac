"""What an error of the Kafka client means to us, decided in one place by code and never by text."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from inorder.model.errors import (
    FencedError,
    InorderError,
    RejectedError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
)

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

OF_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""The broker or the client refused a record for what it is: sending it again cannot help."""

UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """The client's error inside its exception."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - the client raises nothing else
    return error


def meaning(error: KafkaError, doing: str) -> InorderError:
    """The error as one of ours; `doing` names the act and the place."""
    text = f"{doing}: {error.str()} ({error.name()})."
    if error.code() in FENCED:
        return FencedError(text, hint="Another instance of this relay group has taken the shard over.")
    if error.fatal():
        return UnknownOutcomeError(text)
    if error.code() in OF_THE_RECORD:
        return RejectedError(text)
    if error.code() in UNREACHABLE:
        return UnreachableError(text, hint='Is the broker up, and is kafka."bootstrap.servers" right?')
    return TransientError(text)
