"""One shard's producers: a fence, transactions, and the marker in each of them.

The broker ends a transaction a moment after it has answered the commit, and a client that begins the next one at once
waits 20 ms. So a shard has **two** transactional ids and takes them in turns: one is ended while the other works.

This keeps the fence whole. Taking over initialises the ids in their order and reads the marker afterwards; the first
commit of an owner goes through the first id, and it changes ids only after a commit. Whoever was overtaken on the first
id, at any moment, can therefore commit nothing at all; and whatever was committed through the second id before it was
fenced is in the marker that the new owner reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.errors import OF_THE_RECORD, error_of, meaning
from inorder.kafka.marker import read_last_marker
from inorder.kafka.sender import Sender
from inorder.kafka.topics import ensure_compacted_topic
from inorder.model.errors import InorderError, RejectedError, TransientError, UnknownOutcomeError
from inorder.model.partition import Partitioner
from inorder.ports.outbox_store import OutboxRow

INIT_SECONDS = 30.0
COMMIT_SECONDS = 60.0
ABORT_SECONDS = 15.0
ANSWER_SECONDS = 5.0

DEFAULTS: Mapping[str, object] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    # A paused owner's open transaction holds readers back until the broker ends it.
    "transaction.timeout.ms": 10_000,
}
"""What users may change."""

OURS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    # JVM clients and this one must agree where a key lives.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}
"""What the protocol depends on."""


class KafkaShardLog:
    """Publishes the batches of one shard; see `relay/drain.py` for the protocol this serves."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        group: str,
        shard: int = 0,
        shards: int = 1,
        partitioners: Mapping[str, Partitioner] | None = None,
    ) -> None:
        self._properties = dict(properties)
        self._transactional_id = f"inorder.{group}.{shard}"
        self._marker_topic = marker_topic(group)
        self._shard = shard
        self._shards = shards
        self._sender = Sender(partitioners or {})
        self._producers: tuple[Producer, ...] = ()
        self._turn = 0
        self._refused: list[tuple[KafkaError, Message]] = []

    def take_over(self) -> bytes | None:
        """Fences earlier owners and returns the last committed marker."""
        self.close()
        ensure_compacted_topic(self._properties, self._marker_topic, self._shards)
        self._producers = tuple(self._fenced_producer(letter) for letter in "ab")
        return read_last_marker(self._properties, self._marker_topic, self._shard)

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Sends rows and marker in one transaction, which is committed on return."""
        if not self._producers:
            raise UnknownOutcomeError("The shard was not taken over.")
        producer = self._producers[self._turn]
        self._refused.clear()
        try:
            producer.begin_transaction()
            self._sender.send(producer, rows)
            producer.produce(self._marker_topic, value=marker, key=str(self._shard), partition=self._shard)
        except KafkaException as exception:
            raise self._give_up(producer, error_of(exception)) from exception
        except InorderError:
            self._abort(producer)
            raise
        self._commit(producer)
        self._turn = (self._turn + 1) % len(self._producers)

    def close(self) -> None:
        """Forgets the producers. An open transaction is left to the next owner's fence, or to its timeout."""
        self._producers = ()
        self._turn = 0
        self._sender.forget()

    def _fenced_producer(self, letter: str) -> Producer:
        transactional_id = f"{self._transactional_id}.{letter}"
        producer = Producer(
            {
                **DEFAULTS,
                **self._properties,
                **OURS,
                "transactional.id": transactional_id,
                "on_delivery": self._note_refusal,
            },
            logger=CLIENT_LOG,
        )
        try:
            producer.init_transactions(INIT_SECONDS)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {transactional_id!r}") from exception
        return producer

    def _note_refusal(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append((error, message))

    def _commit(self, producer: Producer) -> None:
        """Asks until there is an answer; a commit that timed out may be asked for again."""
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                producer.commit_transaction(ANSWER_SECONDS)
                return
            except KafkaException as exception:
                error = error_of(exception)
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._after_commit(producer, error) from exception

    def _after_commit(self, producer: Producer, error: KafkaError) -> InorderError:
        """What a commit that did not succeed means: aborted for sure, fenced, or unknown."""
        if error.fatal() or error.txn_requires_abort():
            return self._give_up(producer, error)
        return UnknownOutcomeError(f"Committing as {self._transactional_id!r}: {error.str()} ({error.name()}).")

    def _give_up(self, producer: Producer, error: KafkaError) -> InorderError:
        """Aborts the transaction unless the producer is lost, and names the record that caused it, if one did."""
        if error.fatal():
            return meaning(error, f"Publishing as {self._transactional_id!r}")
        self._abort(producer)
        for refused, message in self._refused:
            if refused.code() in OF_THE_RECORD:
                place = f"A record of topic {message.topic()!r} with key {message.key()!r}"
                return RejectedError(f"{place} was refused: {refused.str()} ({refused.name()}).")
        return TransientError(f"Publishing as {self._transactional_id!r}: {error.str()} ({error.name()}).")

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(ABORT_SECONDS)
        except KafkaException as exception:
            error = error_of(exception)
            found = meaning(error, f"Aborting as {self._transactional_id!r}")
            raise (found if error.fatal() else UnknownOutcomeError(found.message)) from exception


def marker_topic(group: str) -> str:
    """Where the markers of a relay group are kept, a partition a shard."""
    return f"inorder.{group}.marker"
