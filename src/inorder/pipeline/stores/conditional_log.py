"""A write that Kafka does not have: a record is sent unless something before it in its partition speaks against it.

The record is sent in a transaction. That gives it its offset, and readers of committed records stop in front of it
until the transaction ends. Once every earlier transaction of the partition has ended, everything before the record is
final and can be read. The caller reads it and objects or not; then the transaction is aborted or committed. A record
that another producer sends meanwhile comes after this one.

There is one transactional id per pipeline (`kafka/fenced_producer.py`), so a retry that begins while another one runs,
or after one that was killed, ends the other's transaction first. The id is taken again where a request of the last
letter may still be on its way: it could commit the next record before anything was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from inorder.engines.slice_work import TopicSource
from inorder.kafka.errors import FENCED, describe, error_of, meaning
from inorder.kafka.fenced_producer import NO_PROPERTIES, FencedProducer
from inorder.model.errors import FencedError, TransientError, UnknownOutcomeError, UnreachableError
from inorder.pipeline.stores.ports import Objection, StoredLetter

RETRY_HEADER = "inorder.retry"
"""Names the dead letter that the record was; for people, no program depends on it."""

TURN_SECONDS = 15.0
"""How long transactions of other producers that began before ours may take."""

_POLL_SECONDS = 0.02

_OVERRIDES = {
    "delivery.report.only.error": False,
    # If this process is killed in mid-transaction, readers of the partition wait that long.
    "transaction.timeout.ms": 30_000,
}


class KafkaConditionalLog:
    """Sends letters of one pipeline; connects when the first one is sent."""

    def __init__(self, properties: Mapping[str, Any], source: TopicSource, pipeline: str) -> None:
        self._properties = properties
        self._source = source
        self._transactional_id = f"inorder.dead-letters.{pipeline}"
        self._producer: FencedProducer | None = None

    def send_unless(self, letter: StoredLetter, objection: Callable[[int], Objection | None]) -> Objection | int:
        """Sends the letter, calls `objection` with its offset, and commits unless it objects; else aborts."""
        with self._our_errors(letter):
            producer = self._hold_id()
            producer.begin()
        try:
            with self._our_errors(letter):
                offset = self._send(producer, letter)
                self._await_turn(letter, offset)
            objected = objection(offset)
        except BaseException:
            self._abort(producer)
            raise
        if objected is not None:
            self._abort(producer)
            return objected
        self._commit(producer, letter)
        return offset

    def close(self) -> None:
        self._producer = None

    def _hold_id(self) -> FencedProducer:
        if self._producer is None or self._producer.is_spent:
            self._producer = FencedProducer(
                self._properties, self._transactional_id, defaults=NO_PROPERTIES, overrides=_OVERRIDES
            )
        return self._producer

    def _send(self, producer: FencedProducer, letter: StoredLetter) -> int:
        """Sends the record; returns its offset."""
        answers: list[tuple[KafkaError | None, Message]] = []
        producer.client.produce(
            letter.topic,
            letter.value,
            letter.key,
            letter.partition,
            headers=[(RETRY_HEADER, letter.id.encode())],
            on_delivery=lambda error, message: answers.append((error, message)),
        )
        producer.client.flush(TURN_SECONDS)
        if not answers:
            raise UnreachableError(f"The broker did not acknowledge {letter.id} within {TURN_SECONDS:.0f} s.")
        error, message = answers[0]
        if error is not None:
            raise KafkaException(error)
        return message.offset() or 0

    def _await_turn(self, letter: StoredLetter, offset: int) -> None:
        """Waits until everything before the record is final: readers of committed records then stop right before it."""
        deadline = time.monotonic() + TURN_SECONDS
        while (self._source.extents(letter.topic) or {})[letter.partition].end < offset:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"{letter.topic}[{letter.partition}] has a transaction of another producer that does not end.",
                    hint="Retry once it has; the letter is as it was.",
                )
            time.sleep(_POLL_SECONDS)

    def _commit(self, producer: FencedProducer, letter: StoredLetter) -> None:
        try:
            producer.commit()
        except KafkaException as exception:
            self._producer = None
            raise _unknown_outcome(letter, describe(error_of(exception))) from exception

    def _abort(self, producer: FencedProducer) -> None:
        producer.try_abort()  # spent where it fails

    @contextmanager
    def _our_errors(self, letter: StoredLetter) -> Iterator[None]:
        try:
            yield
        except (FencedError, UnknownOutcomeError) as lost:
            raise _unknown_outcome(letter, lost.message) from lost
        except KafkaException as exception:
            self._producer = None
            error = error_of(exception)
            if error.code() in FENCED or error.fatal():
                raise _unknown_outcome(letter, describe(error)) from exception
            raise meaning(error, f"Sending {letter.id}") from exception


def _unknown_outcome(letter: StoredLetter, reason: str) -> TransientError:
    return TransientError(
        f"Whether {letter.id} was sent to the topic is not known: {reason}",
        hint="Retry it again: if it is in the topic, the letter is found stale.",
    )
