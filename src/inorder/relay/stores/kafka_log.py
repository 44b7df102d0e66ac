"""One shard's producers: a fence, transactions, and the marker in each of them.

The broker ends a transaction a moment after it has answered the commit, and a client that begins the next one at once
waits 20 ms. So a shard has **two** transactional ids and takes them in turns: one is ended while the other works.

This keeps the fence whole. Taking over initialises the ids in their order and reads the marker afterwards; the first
commit of an owner goes through the first id, and it changes ids only after a commit. Whoever was overtaken on the first
id, at any moment, can therefore commit nothing at all; and whatever was committed through the second id before it was
fenced is in the marker that the new owner reads.

**Producers that must be renewed.** A transaction that the broker refuses for one of its topics leaves the client's
producer useless, and a topic that takes small batches only (`kafka/topic_limits.py`) needs one with other settings. In
both cases the ids are initialised again before the next batch. That fences whoever took over in the meantime, so it is
allowed only if nobody has committed since: each marker names its batch, and the last one must be ours. If it is not,
we were overtaken, or a batch that we took for aborted was committed; then taking over is the only way on.

**Clients that are wrong about a broker that was away.** A client that once heard of a missing topic goes by that for
minutes, and it may be mistaken about sequence numbers or about who coordinates. No wait of ours may be as long as that:

| a wait for …                   | ends after | then                                                                   |
|---|---|---|
| a record to be taken           | 10 s       | `transaction.timeout.ms`, which is its `message.timeout.ms` too: abort |
| the answer to an abort         | 15 s       | the outcome is unknown: the owner takes over from itself, anew         |
| the answer to a commit         | 20 s       | the same; a client finds its broker again within 10 s                  |
| a producer that fails          | two tries  | it is renewed, unless a record or a topic is to blame                  |
| the fence; the marker          | 30 s; 20 s | the term ends; the next one asks with new clients                      |
| a transaction without an owner | 20 s       | the broker aborts it: its time is 10 s, and it looks every 10 s        |
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.kafka.admin import ensure_compacted_topic
from inorder.kafka.errors import CLIENT_LOG, OF_THE_RECORD, error_of, meaning, words
from inorder.kafka.fenced_producer import (
    ABORT_SECONDS,
    ANSWER_SECONDS,
    COMMIT_SECONDS,
    DEFAULTS,
    INIT_SECONDS,
    MOST_FAILURES,
    OURS,
    commit,
)
from inorder.kafka.readers import committed_consumer, read_last_record
from inorder.kafka.sender import Sender
from inorder.kafka.topic_facts import KnownTopics, TopicLimits
from inorder.model.errors import (
    FencedError,
    InorderError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
)
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Partitioner

LETTERS = "ab"
"""One transactional id each."""


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
        self._topics = KnownTopics(self._properties)
        self._limits = TopicLimits(self._properties)
        self._sender = Sender(partitioners or {}, self._topics)
        self._producers: tuple[Producer, ...] = ()
        self._must_renew = False
        self._failures = 0
        self._turn = 0
        self._refused: list[tuple[KafkaError, Message]] = []
        self._term = ""
        self._batches = 0
        self._last_batch: bytes | None = None

    def take_over(self) -> bytes | None:
        """Fences earlier owners and returns the last committed marker."""
        self.close()
        last = self._initialise()
        self._term, self._last_batch = uuid.uuid4().hex, last.batch
        return last.value

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Sends rows and marker in one transaction, which is committed on return."""
        if not self._producers:
            raise UnknownOutcomeError("The shard was not taken over.")
        self._limits.require(rows)
        if self._must_renew:
            self._renew()
        try:
            self._publish(self._producers[self._turn], rows, marker)
        except TransientError as error:
            self._note_failure(error)
            raise
        self._failures = 0
        self._turn = (self._turn + 1) % len(self._producers)

    def _publish(self, producer: Producer, rows: Sequence[OutboxRow], marker: bytes) -> None:
        self._refused.clear()
        name = self._next_name()
        try:
            producer.begin_transaction()
            self._sender.send(producer, rows)
            self._send_marker(producer, marker, name)
        except KafkaException as exception:
            raise self._give_up(producer, rows, error_of(exception)) from exception
        except InorderError:
            self._abort(producer)
            raise
        self._commit(producer, rows)
        self._last_batch = name

    def _note_failure(self, error: TransientError) -> None:
        """Has a producer renewed that failed again although nothing is wrong with what it was to send."""
        if isinstance(error, FencedError | UnknownOutcomeError | TopicUnavailableError):
            return  # of the first two only taking over helps
        self._failures += 1
        self._must_renew |= self._failures >= MOST_FAILURES

    def close(self) -> None:
        """Forgets the producers. An open transaction is left to the next owner's fence, or to its timeout."""
        self._producers = ()
        self._must_renew = False
        self._failures = 0
        self._topics.doubt()

    def _initialise(self) -> Marker:
        ensure_compacted_topic(self._properties, self._marker_topic, self._shards)
        self._producers = tuple(self._fenced_producer(letter) for letter in LETTERS)
        self._turn = 0
        return read_last_marker(self._properties, self._marker_topic, self._shard)

    def _renew(self) -> None:
        """Fresh producers for the same owner, if it still is the one who committed last."""
        self._topics.doubt()
        found = self._initialise()
        self._must_renew = False
        self._failures = 0
        if found.batch == self._last_batch:
            return
        self.close()
        place = f"Renewing the producers of {self._transactional_id!r}"
        if found.batch is None or found.batch.startswith(self._term.encode()):
            raise UnknownOutcomeError(f"{place}: the last marker is not the expected one.")
        raise FencedError(f"{place}: another owner has committed since.")

    def _next_name(self) -> bytes:
        self._batches += 1
        return f"{self._term}.{self._batches}".encode()

    def _send_marker(self, producer: Producer, marker: bytes, name: bytes) -> None:
        key = str(self._shard)
        try:
            producer.produce(self._marker_topic, marker, key, partition=self._shard, headers=[(BATCH_NAME, name)])
        except BufferError as error:
            raise TransientError("The producer's queue is full at the marker.") from error

    def _fenced_producer(self, letter: str) -> Producer:
        transactional_id = f"{self._transactional_id}.{letter}"
        producer = Producer(
            {
                **DEFAULTS,
                **self._properties,
                **OURS,
                "batch.size": self._limits.batch_size,
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

    def _commit(self, producer: Producer, rows: Sequence[OutboxRow]) -> None:
        def look_for_lost_topics() -> None:
            if self._topics.blame(producer, rows):
                # The client would wait for such a topic much longer. Without its records the commit fails.
                producer.purge(in_flight=False)

        try:
            commit(producer, COMMIT_SECONDS, ANSWER_SECONDS, meanwhile=look_for_lost_topics)
        except KafkaException as exception:
            raise self._after_commit(producer, rows, error_of(exception)) from exception

    def _after_commit(self, producer: Producer, rows: Sequence[OutboxRow], error: KafkaError) -> InorderError:
        """What a commit that did not succeed means: aborted for sure, fenced, or unknown."""
        if error.fatal() or error.txn_requires_abort():
            return self._give_up(producer, rows, error)
        return UnknownOutcomeError(f"Committing as {self._transactional_id!r}: {words(error)}")

    def _give_up(self, producer: Producer, rows: Sequence[OutboxRow], error: KafkaError) -> InorderError:
        """Aborts the transaction unless the producer is lost, and names the record or topic to blame, if one is."""
        if error.fatal():
            return meaning(error, f"Publishing as {self._transactional_id!r}")
        self._abort(producer)
        if refused := [each for each in self._refused if each[0].code() in OF_THE_RECORD]:
            return self._after_refusal(rows, refused)
        found = self._topics.blame(producer, rows, error)
        return found or TransientError(f"Publishing as {self._transactional_id!r}: {words(error)}")

    def _after_refusal(
        self, rows: Sequence[OutboxRow], refused: Sequence[tuple[KafkaError, Message]]
    ) -> RejectedError | TransientError:
        """Names the guilty one of the refused records if it is known, or sees to smaller batches."""
        error, message = refused[0]
        text = f"A record of topic {message.topic()!r} with key {message.key()!r} was refused: {words(error)}"
        contents = {(each.topic(), each.key(), each.value()) for _, each in refused}
        suspects = [row for row in rows if (row.topic, row.key, row.value) in contents]
        guilty, learnt = self._limits.judge(suspects[: len(refused)], error)
        self._must_renew |= learnt
        if guilty is None and learnt:
            return TransientError(f"{text} Batches have {self._limits.batch_size} bytes at most from now on.")
        return RejectedError(text, row_id=None if guilty is None else guilty.id)

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(ABORT_SECONDS)
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() == KafkaError.INVALID_TXN_STATE:
                # It refused the first partition of the transaction and so knows of none; the client does not know that.
                self._must_renew = True
                return
            found = meaning(error, f"Aborting as {self._transactional_id!r}")
            raise (found if error.fatal() else UnknownOutcomeError(found.message)) from exception


def marker_topic(group: str) -> str:
    """Where the markers of a relay group are kept, a partition a shard."""
    return f"inorder.{group}.marker"


# Reading the last committed marker of a shard back from its compacted topic.

BATCH_NAME = "batch"
"""The header that names the batch of a marker."""


class Marker(NamedTuple):
    """A committed marker; the name of its batch tells it from every other one, also from one of the same content."""

    value: bytes | None = None
    batch: bytes | None = None


def read_last_marker(properties: Mapping[str, object], topic: str, partition: int) -> Marker:
    """The newest committed record of the partition; an empty marker if there was never one.

    To be called after `init_transactions`, so that no transaction is open on the partition.
    """
    consumer = committed_consumer(properties, f"{topic}.reader")
    try:
        last = read_last_record(consumer, topic, partition)
        return Marker() if last is None else Marker(last.value(), _header(last, BATCH_NAME))
    except KafkaException as exception:
        found = meaning(error_of(exception), f"Reading the marker in {topic}/{partition}")
        # A partition that was made a moment ago may not be known everywhere yet: no record is to blame.
        raise (UnreachableError(found.message) if isinstance(found, RejectedError) else found) from exception
    finally:
        consumer.close()


def _header(message: Message, name: str) -> bytes | None:
    value = dict(message.headers() or ()).get(name)
    return value.encode() if isinstance(value, str) else value
