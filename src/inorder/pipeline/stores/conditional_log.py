"""A write that Kafka does not have: a record is sent if nothing that stands before it speaks against it.

The record is sent in a transaction. That gives it its offset, and readers of committed records stop in front of it
until the transaction ends. Once every earlier transaction of the partition has ended, all before the record is decided
and can be read; whoever asked looks at it and objects or not; then the transaction is aborted or committed. A record
that is sent by others meanwhile stands behind ours.

The transactional id is one for each pipeline, so a retry that begins while another one runs, or after a killed one,
ends the other's transaction first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.engines.slice_work import TopicSource
from inorder.kafka.errors import CLIENT_LOG, FENCED, error_of, meaning, words
from inorder.kafka.fenced_producer import ABORT_SECONDS, ANSWER_SECONDS, COMMIT_SECONDS, INIT_SECONDS, OURS, commit
from inorder.model.errors import TransientError, UnreachableError
from inorder.pipeline.stores.ports import Objection, StoredLetter

RETRY_HEADER = "inorder.retry"
"""Names the dead letter that the record was; for people, nobody decides by it."""

TURN_SECONDS = 15.0
"""How long the transactions of others may take that began before ours."""

_POLL_SECONDS = 0.02


class KafkaConditionalLog:
    """Sends letters of one pipeline; connects when the first one is sent."""

    def __init__(self, properties: Mapping[str, Any], source: TopicSource, pipeline: str) -> None:
        self._properties = properties
        self._source = source
        self._transactional_id = f"inorder.dead-letters.{pipeline}"
        self._producer: Producer | None = None

    def send_unless(self, letter: StoredLetter, objection: Callable[[int], Objection | None]) -> Objection | int:
        """Sends the letter, asks, and commits or aborts."""
        with self._our_errors(letter):
            producer = self._producer or self._made()
            producer.begin_transaction()
        try:
            with self._our_errors(letter):
                offset = self._offset_of(producer, letter)
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
        """Forgets the producer."""
        self._producer = None

    def _made(self) -> Producer:
        producer = Producer(
            {
                **self._properties,
                **OURS,
                "delivery.report.only.error": False,
                "transactional.id": self._transactional_id,
                # Readers of the partition wait as long where we are killed in the middle.
                "transaction.timeout.ms": 30_000,
            },
            logger=CLIENT_LOG,
        )
        producer.init_transactions(INIT_SECONDS)
        self._producer = producer
        return producer

    def _offset_of(self, producer: Producer, letter: StoredLetter) -> int:
        """Sends the record; returns the offset that it was given."""
        answers: list[tuple[KafkaError | None, Message]] = []
        producer.produce(
            letter.topic,
            letter.value,
            letter.key,
            letter.partition,
            headers=[(RETRY_HEADER, letter.id.encode())],
            on_delivery=lambda error, message: answers.append((error, message)),
        )
        producer.flush(TURN_SECONDS)
        if not answers:
            raise UnreachableError(f"{letter.id} was not taken by the broker within {TURN_SECONDS:.0f} s.")
        error, message = answers[0]
        if error is not None:
            raise KafkaException(error)
        return message.offset() or 0

    def _await_turn(self, letter: StoredLetter, offset: int) -> None:
        """Waits until everything before the record is decided: then readers stand right in front of it."""
        deadline = time.monotonic() + TURN_SECONDS
        while (self._source.extents(letter.topic) or {})[letter.partition].end < offset:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"{letter.topic}[{letter.partition}] has a transaction of somebody else that does not end.",
                    hint="Retry once it has; the letter is as it was.",
                )
            time.sleep(_POLL_SECONDS)

    def _commit(self, producer: Producer, letter: StoredLetter) -> None:
        try:
            commit(producer, COMMIT_SECONDS, ANSWER_SECONDS)
        except KafkaException as exception:
            self._producer = None
            raise self._unsure(letter, error_of(exception)) from exception

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(ABORT_SECONDS)
        except KafkaException:
            # The broker does it after the time-out of the transaction, or as soon as the id is used again.
            self._producer = None

    @contextmanager
    def _our_errors(self, letter: StoredLetter) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            self._producer = None
            error = error_of(exception)
            if error.code() in FENCED or error.fatal():
                raise self._unsure(letter, error) from exception
            raise meaning(error, f"Sending {letter.id}") from exception

    def _unsure(self, letter: StoredLetter, error: KafkaError) -> TransientError:
        return TransientError(
            f"Whether {letter.id} was sent to the topic is not known: {words(error)}",
            hint="Retry it again: if it is in the topic, the letter is found stale.",
        )
