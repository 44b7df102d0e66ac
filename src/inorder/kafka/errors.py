"""Errors of the Kafka client: what each code means, and how a failed authentication is noticed at once.

The code of an error decides, never its text. Every error of the client becomes an `InorderError` here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, wait
from reprlib import Repr
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from inorder.model.errors import (
    AuthenticationError,
    FencedError,
    InorderError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
    last_line,
)
from inorder.model.message import OutboxRow

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

RECORD_ERRORS = frozenset(
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
"""The broker or the client refuses a record for its content: sending it again cannot help."""

SIZE_ERRORS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

BEING_MADE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE})
"""The topic does not exist, or the broker is just creating it because a client asked for it."""

TOPIC_ERRORS = BEING_MADE | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""One topic cannot be written to; all others can."""

UNANSWERED_ERRORS = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
"""A record was sent and given up without an answer, so it may have arrived."""

UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """Returns the client's error inside its exception."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - the client raises nothing else
    return error


def describe(error: KafkaError) -> str:
    """Renders the error as the end of a sentence."""
    return f"{error.str()} ({error.name()})."


def describe_key(record: Message) -> str:
    """Renders the key of a record, shortened: it may be as long as a value, and such texts are stored and sent."""
    return _SHORT.repr(record.key())


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def meaning(error: KafkaError, doing: str) -> InorderError:
    """Returns the `InorderError` for an error; `doing` names the action and the place."""
    text = f"{doing}: {describe(error)}"
    if error.code() in FENCED:
        return FencedError(text, hint="Another instance of this relay group has taken the shard over.")
    if error.fatal():
        return UnknownOutcomeError(text)
    if error.code() in RECORD_ERRORS:
        return RejectedError(text)
    if error.code() in UNREACHABLE:
        return UnreachableError(text, hint='Is the broker up, and is kafka."bootstrap.servers" right?')
    return TransientError(text)


def topic_unavailable(topic: str, error: KafkaError, suggestion: str = ".") -> TopicUnavailableError:
    """Returns the error for a topic that cannot be written to, for a reason out of `TOPIC_ERRORS`.

    `suggestion` ends the sentence, with the topic that was probably meant where there is one.
    """
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        hint = "Give the user of [kafka] permission to write to it."
    else:
        hint = (
            "Create it, with `inorder topics apply` if [topics] names it, or repair the row. With "
            'kafka."allow.auto.create.topics" = true the broker creates topics, if it does that at all.'
        )
    text = f"Topic {topic!r} cannot be written to: {describe(error).removesuffix('.')}{suggestion}"
    return TopicUnavailableError(topic, text, hint=hint)


def row_error(row: OutboxRow, error: object, noun: str = "outbox row", *, suggestion: str = ".") -> InorderError:
    """Returns the error for a row that the client did not accept, or whose topic is not usable."""
    doing = f"Sending {noun} {row.id} to topic {row.topic!r}"
    if not isinstance(error, KafkaError):
        return TransientError(f"{doing}: {error}.")
    if error.code() in TOPIC_ERRORS:
        return topic_unavailable(row.topic, error, suggestion)
    found = meaning(error, doing)
    if isinstance(found, RejectedError):
        return RejectedError(found.message, row_id=row.id)
    return TransientError(found.message)


def unexpected(rows: Sequence[OutboxRow], error: Exception, noun: str = "outbox row") -> RejectedError:
    """Returns the refusal of rows that made our code or the client fail unexpectedly; one of them is to blame."""
    if len(rows) == 1:
        return RejectedError(f"Sending {noun} {rows[0].id} failed: {last_line(error)}", row_id=rows[0].id)
    return RejectedError(f"Sending {len(rows)} rows failed: {last_line(error)}")


AUTH_ERRORS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
_STEP_SECONDS = 0.05

_TLS_HINT = (
    "Check kafka.\"ssl.ca.location\", which must have signed the broker's certificate, and the client's certificate "
    "if the broker requires one."
)
_LOGIN_HINT = 'Check kafka."sasl.username", kafka."sasl.password" and kafka."sasl.mechanism".'


class PolledClient(Protocol):
    """Any client of the library, as far as its events go."""

    def poll(self, timeout: float = ..., /) -> Any: ...


class AuthWatch:
    """Notices that authentication failed while a caller waits for an answer; `note` is the client's `error_cb`.

    A client whose login or certificate is refused retries for ever, and every request ends with a timeout that says
    nothing about the reason. The reason comes separately, as an event of the client. So `watch` polls for events while
    it waits, and raises the reason at once.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._refusal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        if error.code() in AUTH_ERRORS:
            self._refusal = error

    def watch(self, client: PolledClient, future: Future[Any]) -> None:
        """Returns when there is an answer; raises `AuthenticationError` if there will be none."""
        while not future.done():
            wait([future], _STEP_SECONDS)  # not by `poll`, which sleeps on after the answer has come
            client.poll(0)
            if self._refusal is not None and not future.done():
                reason = self._refusal.str()
                hint = _TLS_HINT if self._refusal.code() == KafkaError._SSL else _LOGIN_HINT
                raise AuthenticationError(f"Kafka at {self._servers}: authentication failed: {reason}.", hint=hint)


# librdkafka logs to stderr by default and repeats each failed connection many times a second. Our errors report a
# failure once, so this logger is silent until the application adds a handler.
CLIENT_LOG = logging.getLogger("inorder.kafka.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False
