"""What an error of the Kafka client means to us, decided in one place by code and never by text."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from inorder.model.errors import (
    AuthenticationError,
    FencedError,
    InorderError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
)
from inorder.model.outbox_row import OutboxRow

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

FOR_SIZE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

BEING_MADE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE})
"""What is said of a topic that does not exist, and also of one that the broker makes because somebody asked for it."""

OF_THE_TOPIC = BEING_MADE | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""The topic cannot be written to; all others can."""

IN_FLIGHT = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
"""A record was sent and given up without an answer: nobody knows whether it arrived."""

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


def words(error: KafkaError) -> str:
    """The error as the end of a sentence."""
    return f"{error.str()} ({error.name()})."


def meaning(error: KafkaError, doing: str) -> InorderError:
    """The error as one of ours; `doing` names the act and the place."""
    text = f"{doing}: {words(error)}"
    if error.code() in FENCED:
        return FencedError(text, hint="Another instance of this relay group has taken the shard over.")
    if error.fatal():
        return UnknownOutcomeError(text)
    if error.code() in OF_THE_RECORD:
        return RejectedError(text)
    if error.code() in UNREACHABLE:
        return UnreachableError(text, hint='Is the broker up, and is kafka."bootstrap.servers" right?')
    return TransientError(text)


def unavailable(topic: str, error: KafkaError, delivered: frozenset[int] = frozenset()) -> TopicUnavailableError:
    """The topic cannot be written to for now, for a reason out of `OF_THE_TOPIC`."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        hint = "Give the user of [kafka] the right to write to it."
    else:
        hint = "Create it, or let the broker do so (auto.create.topics.enable)."
    text = f"Topic {topic!r} cannot be written to: {words(error)}"
    return TopicUnavailableError(topic, text, hint=hint, delivered_ids=delivered)


def refusal(row: OutboxRow, error: object, noun: str = "outbox row") -> InorderError:
    """What it means that the client did not take a row, or did not find the topic of it usable."""
    doing = f"Sending {noun} {row.id} to topic {row.topic!r}"
    if not isinstance(error, KafkaError):
        return TransientError(f"{doing}: {error}.")
    if error.code() in OF_THE_TOPIC:
        return unavailable(row.topic, error)
    found = meaning(error, doing)
    if isinstance(found, RejectedError):
        return RejectedError(found.message, row_id=row.id)
    return TransientError(found.message)


# Whether a cluster lets us in.
#
# A client that is refused for its password or certificate goes on knocking, and whatever it was asked for ends with a
# timeout, which says nothing. The reason comes apart from that, as an event of the client. So whoever waits for an
# answer listens for such events meanwhile, and hears the reason at once.

NOT_ADMITTED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
_STEP_SECONDS = 0.05

_HINTS = {
    KafkaError._SSL: (
        'Check kafka."ssl.ca.location", which must have signed the broker\'s certificate, and our own certificate '
        "if the broker wants one."
    ),
}
_OF_THE_LOGIN = 'Check kafka."sasl.username", kafka."sasl.password" and kafka."sasl.mechanism".'


class Client(Protocol):
    """A client of the library, as far as its events go."""

    def poll(self, timeout: float = ..., /) -> Any: ...


class Door:
    """Listens whether the cluster lets a client in; `note` is the client's `error_cb`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._refusal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """An event of the client."""
        if error.code() in NOT_ADMITTED:
            self._refusal = error

    def watch(self, client: Client, future: Future[Any]) -> None:
        """Returns when there is an answer; raises `NotAdmittedError` if there will be none."""
        while not future.done():
            client.poll(_STEP_SECONDS)
            if self._refusal is not None and not future.done():
                raise self._not_admitted(self._refusal)

    def _not_admitted(self, error: KafkaError) -> AuthenticationError:
        hint = _HINTS.get(error.code(), _OF_THE_LOGIN)
        return AuthenticationError(f"Kafka at {self._servers} does not let us in: {error.str()}.", hint=hint)


# Where the client library's own messages go: to a logger of ours instead of stderr.
#
# It repeats each failed connection many times a second; the errors that we raise say it once. So the logger is silent
# until somebody gives it a handler.

CLIENT_LOG = logging.getLogger("inorder.kafka.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False
