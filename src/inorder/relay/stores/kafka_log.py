"""The shard log of delivery `exactly-once`: two fenced producers, and a marker in each of their transactions.

`kafka/fenced_producer.py` explains the fence, the outcomes of a transaction and how an unknown outcome is resolved.
What answers the question here is the marker: the next owner reads the last one that was committed.

**Two ids.** The broker ends a transaction a moment after it has answered the commit, and a client that begins the next
one at once waits 20 ms. So a shard has two transactional ids and alternates between them: one transaction is ended
while the next one is filled.

The fence still holds. Taking over initialises the ids in order and reads the marker afterwards; the first commit of an
owner goes through the first id, and it changes ids only after a commit. An owner that was overtaken on the first id, at
any moment, can therefore commit nothing at all; and what was committed through the second id before it was fenced is in
the marker that the new owner reads.

**Renewing producers.** A transaction that the broker refuses for one of its topics leaves the client unusable, a topic
that accepts small batches only (`TopicLimits`) needs a client with other settings, and a producer whose last request
may still be on its way (`is_spent`) must not use its epoch again. In each case the ids are initialised again before
the next batch of that id. That fences an owner that took over in the meantime, so it is allowed only if
no other owner has committed since: each marker names its batch, and the last one must be ours. If it is not, we were
overtaken, or a batch that we believed aborted was committed; then only `take_over` continues.

**Open transactions on the marker's partition.** Once both ids are initialised, no transaction of ours is open for the
coordinator. If one is open on the partition, another producer wrote to it, or a broker that was killed has completed a
commit of ours without writing it there (seen with Kafka 4.3.1; docs/operations.md). In both cases a reader of committed
records would stop before it: the marker that it finds is not the last one, and rows that later ones name would be
published again. So the take-over waits: nothing is published, and the error names the offset at which the transaction
begins. It is whole because the end of the log is read first and the last stable offset afterwards: if that is not
below, all that was written before is decided. (`kafka/readers.py`: `require_settled`.)

**Clients that are wrong about a broker that was away.** A client that once heard of a missing topic believes that for
minutes, and it may be mistaken about sequence numbers or about the coordinator. No wait of ours may be that long:

| wait for …                     | ends after | then                                                                   |
|---|---|---|
| a record to be accepted        | 10 s       | `transaction.timeout.ms`, which is its `message.timeout.ms` too: abort |
| the answer to an abort         | 15 s       | the outcome is unknown: the owner takes over from itself               |
| the answer to a commit         | 20 s       | the same; a client finds its broker again within 10 s                  |
| a producer that fails          | two tries  | it is renewed, unless a record or a topic is to blame                  |
| the fence; the marker          | 30 s; 20 s | the term ends; the next one asks with new clients                      |
| a transaction without an owner | 20 s       | the broker aborts it: its time is 10 s, and it looks every 10 s        |
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from inorder.kafka.admin import ensure_compacted_topic
from inorder.kafka.errors import describe, describe_key, error_of, meaning
from inorder.kafka.fenced_producer import FencedProducer, RefusedRecord
from inorder.kafka.readers import LAST_RECORD_SECONDS, committed_consumer, read_last_record, require_settled
from inorder.kafka.sender import RowSender, with_ids
from inorder.kafka.shard_log import Delivered, Delivery, Incomplete
from inorder.kafka.topic_facts import KnownTopics, TopicLimits, keep_to_named
from inorder.model.errors import (
    FencedError,
    InorderError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UnreachableError,
)
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.relay.marker import MARKER_TOPIC_BYTES

log = logging.getLogger("inorder.relay")

LETTERS = "ab"
"""One transactional id each."""

MOST_FAILURES = 2
"""Failures in a row, with no record and no topic to blame, after which the producers are renewed."""


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
        id_header: str = "",
        named_topics: Collection[str] = (),
    ) -> None:
        """`id_header` is the name of the header with the id of a row; without a name there is none.

        `named_topics` are topics of the settings, which the broker may create.
        """
        self._properties = keep_to_named(properties, named_topics)
        self._id_header = id_header
        self._transactional_id = f"inorder.{group}.{shard}"
        self._marker_topic = marker_topic(group)
        self._shard = shard
        self._shards = shards
        self._topics = KnownTopics(self._properties, named=named_topics)
        self._limits = TopicLimits(self._properties)
        self.partitioners = dict(partitioners or {})
        self._sender = RowSender(self.partitioners, self._topics)
        self._producers: tuple[FencedProducer, ...] = ()
        self._must_renew = False
        self._failures = 0
        self._turn = 0
        self._term = ""
        self._batches = 0
        self._last_batch: bytes | None = None

    def take_over(self) -> bytes | None:
        """Fences earlier owners and returns the last committed marker."""
        self.close()
        last = self._initialise()
        self._term, self._last_batch = uuid.uuid4().hex, last.batch
        return last.value

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Sends rows and marker in one transaction, which is committed if they are delivered."""
        if not self._producers:
            raise UnknownOutcomeError("The shard was not taken over.")
        rows = with_ids(rows, self._id_header)
        try:
            self._limits.require(rows)
            self._must_renew |= self._producers[self._turn].is_spent
            if self._must_renew:
                self._renew()
            self._publish(self._producers[self._turn], rows, marker)
        except (FencedError, UnknownOutcomeError):
            self.close()  # renewing could fence the next owner: only `take_over` continues
            raise
        except (RejectedError, TransientError) as error:
            return Incomplete(error)
        self._failures = 0
        self._turn = (self._turn + 1) % len(self._producers)
        return Delivered()

    def close(self) -> None:
        """Drops the producers. The next owner's fence, or the time-out, ends a transaction that is open."""
        self._producers = ()
        self._must_renew = False
        self._failures = 0
        self._topics.doubt()

    def _publish(self, producer: FencedProducer, rows: Sequence[OutboxRow], marker: bytes) -> None:
        self._batches += 1
        name = f"{self._term}.{self._batches}".encode()
        try:
            self._send(producer, rows, marker, name)
            self._commit(producer, rows)
        except TransientError as error:
            self._note_failure(error)
            raise
        self._last_batch = name

    def _send(self, producer: FencedProducer, rows: Sequence[OutboxRow], marker: bytes, name: bytes) -> None:
        try:
            producer.begin()
            self._sender.send(producer.client, rows)
            self._send_marker(producer, marker, name)
        except KafkaException as exception:
            raise self._give_up(producer, rows, error_of(exception)) from exception
        except InorderError:
            self._abort(producer)
            raise

    def _send_marker(self, producer: FencedProducer, marker: bytes, name: bytes) -> None:
        produce, key = producer.client.produce, str(self._shard)
        try:
            produce(self._marker_topic, marker, key, partition=self._shard, headers=[(BATCH_NAME, name)])
        except BufferError as error:
            raise TransientError("The producer's queue is full at the marker.") from error

    def _commit(self, producer: FencedProducer, rows: Sequence[OutboxRow]) -> None:
        def look_for_lost_topics() -> None:
            if self._topics.blame(producer.client, rows):
                # The client would wait for such a topic much longer. Without its records the commit fails.
                producer.client.purge(in_flight=False)

        try:
            producer.commit(meanwhile=look_for_lost_topics)
        except KafkaException as exception:
            error = error_of(exception)
            if error.fatal() or error.txn_requires_abort():
                raise self._give_up(producer, rows, error) from exception
            raise UnknownOutcomeError(f"Committing as {self._transactional_id!r}: {describe(error)}") from exception

    def _give_up(self, producer: FencedProducer, rows: Sequence[OutboxRow], error: KafkaError) -> InorderError:
        """Aborts the transaction unless the client is lost, and names the record or topic to blame, if one is."""
        if error.fatal():
            return meaning(error, f"Publishing as {self._transactional_id!r}")
        self._abort(producer)
        if producer.refused:
            return self._after_refusal(rows, producer.refused)
        found = self._topics.blame(producer.client, rows, error)
        return found or TransientError(f"Publishing as {self._transactional_id!r}: {describe(error)}")

    def _abort(self, producer: FencedProducer) -> None:
        try:
            producer.abort()
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() == KafkaError.INVALID_TXN_STATE:
                # The broker refused the first partition of the transaction, so it knows of no transaction to abort.
                self._must_renew = True
                return
            found = meaning(error, f"Aborting as {self._transactional_id!r}")
            raise (found if error.fatal() else UnknownOutcomeError(found.message)) from exception

    def _after_refusal(
        self, rows: Sequence[OutboxRow], refused: Sequence[RefusedRecord]
    ) -> RejectedError | TransientError:
        """Names the refused row if it is known which one it is, or makes the next batches smaller."""
        if of_marker := [error for error, record in refused if record.topic() == self._marker_topic]:
            return self._marker_refusal(of_marker[0])
        error, record = refused[0]
        text = f"A record of topic {record.topic()!r} with key {describe_key(record)} was refused: {describe(error)}"
        contents = {(each.topic(), each.key(), each.value()) for _, each in refused}
        suspects = [row for row in rows if (row.topic, row.key, row.value) in contents]
        guilty, learnt = self._limits.judge(suspects[: len(refused)], error)
        self._must_renew |= learnt
        if guilty is None and learnt:
            return TransientError(f"{text} Batches have {self._limits.batch_size} bytes at most from now on.")
        return RejectedError(text, row_id=None if guilty is None else guilty.id)

    def _marker_refusal(self, error: KafkaError) -> TransientError:
        """No row is to blame. The relay makes its batches smaller, and with them the markers.

        The producers are renewed: in the marker's partition the client has skipped a sequence number.
        """
        self._must_renew = True
        hint = f"Raise max.message.bytes of {self._marker_topic!r} to {MARKER_TOPIC_BYTES} or more."
        return TransientError(f"The marker in topic {self._marker_topic!r} was refused: {describe(error)}", hint=hint)

    def _note_failure(self, error: TransientError) -> None:
        """Renews producers that fail repeatedly although nothing is wrong with what they send."""
        if isinstance(error, FencedError | UnknownOutcomeError | TopicUnavailableError):
            return  # the first two need `take_over`; the last is no fault of the producer
        self._failures += 1
        self._must_renew |= self._failures >= MOST_FAILURES

    def _initialise(self) -> MarkerRecord:
        ensure_compacted_topic(self._properties, self._marker_topic, self._shards)
        packing = {"batch.size": self._limits.batch_size}
        ids = [f"{self._transactional_id}.{letter}" for letter in LETTERS]
        producers = tuple(FencedProducer(self._properties, each, overrides=packing) for each in ids)
        require_settled(self._properties, self._marker_topic, self._shard)
        last = read_last_marker(self._properties, self._marker_topic, self._shard)
        # Not before: without the marker nothing may be published.
        self._producers, self._turn = producers, 0
        return last

    def _renew(self) -> None:
        """Initialises new producers for the same owner, if it still is the one that committed last."""
        began = time.monotonic()
        self._topics.doubt()
        found = self._initialise()
        self._must_renew = False
        self._failures = 0
        if found.batch == self._last_batch:
            seconds = round(time.monotonic() - began, 3)
            log.info("relay.producers_renewed", extra={"transactional_id": self._transactional_id, "seconds": seconds})
            return
        self.close()
        place = f"Renewing the producers of {self._transactional_id!r}"
        if found.batch is None or found.batch.startswith(self._term.encode()):
            raise UnknownOutcomeError(f"{place}: the last marker is not the expected one.")
        raise FencedError(f"{place}: another owner has committed since.")


BATCH_NAME = "batch"
"""The header that names the batch of a marker."""


class MarkerRecord(NamedTuple):
    """A committed marker. The name of its batch is unique, also among markers of the same content."""

    value: bytes | None = None
    batch: bytes | None = None


def marker_topic(group: str) -> str:
    """The compacted topic with the markers of a relay group; shard n uses partition n."""
    return f"inorder.{group}.marker"


def read_last_marker(
    properties: Mapping[str, object], topic: str, partition: int, seconds: float = LAST_RECORD_SECONDS
) -> MarkerRecord:
    """Reads the newest committed record of the partition; an empty marker if there never was one.

    Call it after `init_transactions`, so that no transaction is open on the partition; or only to look.
    """
    consumer = committed_consumer(properties, f"{topic}.reader")
    try:
        last = read_last_record(consumer, topic, partition, seconds)
        return MarkerRecord() if last is None else MarkerRecord(last.value(), _header(last, BATCH_NAME))
    except KafkaException as exception:
        found = meaning(error_of(exception), f"Reading the marker in {topic}/{partition}")
        # A partition that was created a moment ago may not be known everywhere yet: no record is to blame.
        raise (UnreachableError(found.message) if isinstance(found, RejectedError) else found) from exception
    finally:
        consumer.close()


def _header(message: Message, name: str) -> bytes | None:
    value = dict(message.headers() or ()).get(name)
    return value.encode() if isinstance(value, str) else value
