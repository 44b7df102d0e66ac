"""Batches of an engine that may run them again, written to Kafka exactly once: what the sink `inorder.kafka` does.

An engine such as Spark cuts its input into batches and runs parts of them as tasks. It runs a task again when it fails,
and the whole last batch when the driver does. A *lane* is a number that each row carries. The rows of a lane are one
part of each batch, and are sent by one task.

A row's lane comes from the row, and not from the task that has it: Spark numbers its tasks anew when it runs a batch
again. Its Kafka source, for one, lists partitions in another order when it finds them in a checkpoint.

**What is authoritative.** The offset that the lane's group has committed: the number of its last batch + 1. It is
committed in the transaction that carries the records. So a part is in Kafka if and only if its number is committed. The
offset needs a topic to stand for; that is partition 0 of `inorder.spark`, in which there is never a record.

**The fence.** Each lane has a transactional id, `inorder.spark.<name>.<lane>`. Whoever begins on a part takes it: the
broker ends what an earlier attempt left open, and refuses whatever that one sends from then on. The number is asked for
behind the fence, so it cannot move under its holder.

**Order.** Records of a part are sent in their order, by one producer. The engine begins a batch when the one before is
done. So a key is in order if all its rows of a batch are in one lane, and in order there.

**What must hold of the engine.** The rows of a lane are in one task. A batch that is run again has the same rows, with
the same lanes. Spark's plans see to that if they are deterministic, since the extent of a batch is in the checkpoint.
Whether it holds is checked as far as it can be seen: the number of records and the sum of their keys' checksums (of
their values, where they have no key) are committed beside the number. A lane in two tasks shows in the same way: the
second one finds the number committed, with other rows.

Without a batch's number (a batch write without a name) a part is one transaction, and that is all: whoever runs the job
again sends everything again.

Failure table:

| what happens                              | what follows                                                          |
|-------------------------------------------|-----------------------------------------------------------------------|
| task killed before its commit             | the next attempt's fence aborts what is open; it sends the part       |
| task killed after its commit              | the next attempt finds the number committed, and sends nothing        |
| commit sent, answer lost                  | the attempt fails; the next one asks behind its fence                 |
| driver killed in mid-batch                | Spark runs the batch again: parts that are committed are skipped      |
| paused task, or a speculative one beside  | the later one fences the other, which can commit nothing              |
| rows come again with other lanes          | `GuaranteeError` from a lane that is committed and has other rows now |
| a lane is in two tasks                    | `GuaranteeError`, or they fence each other until one is through       |
| the checkpoint is lost                    | `GuaranteeError`: the name belongs to the query of that checkpoint    |
| the checkpoint went back                  | `GuaranteeError`: a later batch is committed                          |
| two queries with one name                 | `GuaranteeError` for the second                                       |
| the broker refuses a record               | `RejectedError`; nothing of its part is visible to `read_committed`   |
| stopped in mid-batch for longer than the  | the broker has forgotten the number (`offsets.retention.minutes`, a   |
| broker keeps offsets                      | week by default): what the last batch had committed is sent again     |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.admin import ensure_topic
from inorder.kafka.errors import CLIENT_LOG, OF_THE_RECORD, error_of, meaning, words
from inorder.kafka.fenced_producer import DEFAULTS, OURS, commit
from inorder.kafka.readers import committed_consumer
from inorder.kafka.sender import Sender
from inorder.kafka.topic_facts import KnownTopics, TopicLimits
from inorder.model.errors import FencedError, GuaranteeError, InorderError, RejectedError
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.topics.stores.kafka_copy import ABORT_SECONDS, ANSWER_SECONDS, COMMIT_SECONDS, ask_committed


@dataclass(frozen=True, slots=True)
class KafkaBatchLog:
    """The lanes of one name."""

    properties: tuple[tuple[str, object], ...]
    name: str
    partitioners: tuple[tuple[str, Partitioner], ...] = ()
    """Of topics that are not partitioned by murmur2."""

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        """Takes the lane, and finds out whether its part of the batch was sent before."""
        name = f"inorder.spark.{self.name}.{lane}"
        part = BatchPart(dict(self.properties), name, topics, dict(self.partitioners), batch)
        if batch is None:
            return part
        committed = part.progress()
        if committed is not None and is_done(name, committed, batch):
            return _Replayed(name, committed)
        return part


class _Replayed:
    """A part that was sent before; its rows are counted, and must be the same."""

    def __init__(self, name: str, committed: Progress) -> None:
        self._name = name
        self._committed = committed
        self._digest = Digest()

    def add(self, rows: Sequence[OutboxRow]) -> None:
        self._digest.add(rows)

    def commit(self) -> Sent:
        require_same(self._name, self._committed, self._digest)
        return Sent(self._digest.records, is_replayed=True)

    def abort(self) -> None:
        """Nothing is open."""


# One part of a batch, its lane held by a transactional id (`batch_log.py` has the protocol).

PROGRESS_TOPIC = "inorder.spark"
MOST_QUEUED = 50_000
"""Half of what the client's queue holds; a chunk must find room."""
POLL_SECONDS = 0.05
TRANSACTION_MS = 60_000
"""A part is one transaction, and the time that it takes to compute its rows counts as well."""


class BatchPart:
    """Used once, by one thread."""

    def __init__(
        self,
        properties: Mapping[str, object],
        name: str,
        topics: Collection[str],
        partitioners: Mapping[str, Partitioner],
        batch: BatchId | None = None,
    ) -> None:
        """Takes the lane from whoever holds it; `topics` are those of the first records."""
        self.name = name
        self._batch = batch
        self._digest = Digest()
        self._properties = properties
        self._group_metadata: object = None
        self._refused: list[tuple[KafkaError, Message]] = []
        self._sender = Sender(partitioners, KnownTopics(properties), noun="row")
        limits = TopicLimits(properties)
        limits.learn(topics)
        defaults = {**DEFAULTS, "transaction.timeout.ms": TRANSACTION_MS}
        ours = {**OURS, "transactional.id": name, "batch.size": limits.batch_size, "on_delivery": self._note_refusal}
        self._producer = Producer({**defaults, **properties, **ours}, logger=CLIENT_LOG)
        try:
            self._producer.init_transactions(ANSWER_SECONDS)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {name!r}") from exception

    def progress(self) -> Progress | None:
        """The last batch of the lane; while it is held nobody else can move it."""
        consumer = committed_consumer(self._properties, self.name)
        try:
            # Asked first, since making it needs a right that nothing else here does.
            if consumer.list_topics(PROGRESS_TOPIC, timeout=ANSWER_SECONDS).topics[PROGRESS_TOPIC].error is not None:
                ensure_topic(self._properties, PROGRESS_TOPIC, 1)
            [found] = ask_committed(consumer, [TopicPartition(PROGRESS_TOPIC, 0)])
            self._group_metadata = consumer.consumer_group_metadata()
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Asking how far {self.name!r} is") from exception
        finally:
            consumer.close()
        return progress_of(found.offset, found.metadata)

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Sends rows, in the transaction that the first of them begin."""
        try:
            if not self._digest.records:
                self._producer.begin_transaction()
            self._digest.add(rows)
            self._make_room()
            self._sender.send(self._producer, rows)
        except KafkaException as exception:
            raise self._given_up(error_of(exception)) from exception

    def commit(self) -> Sent:
        """Commits the records and, in the same transaction, the number of the batch: `progress` is asked first."""
        try:
            if self._batch is not None:
                self._note(Progress(self._batch, self._digest))
            commit(self._producer, COMMIT_SECONDS, ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._given_up(error_of(exception)) from exception
        return Sent(self._digest.records)

    def abort(self) -> None:
        """Lets readers go at once, if possible; the next fence or a time-out does it else."""
        with suppress(KafkaException):
            self._producer.abort_transaction(ABORT_SECONDS)

    def _make_room(self) -> None:
        while len(self._producer) > MOST_QUEUED:
            self._producer.poll(POLL_SECONDS)

    def _note(self, progress: Progress) -> None:
        place = TopicPartition(PROGRESS_TOPIC, 0, progress.batch.number + 1, progress.to_text())
        self._producer.send_offsets_to_transaction([place], self._group_metadata, COMMIT_SECONDS)

    def _given_up(self, error: KafkaError) -> InorderError:
        """What it means that the transaction failed."""
        if not error.fatal():
            self.abort()
        if self._refused:
            refusal, message = self._refused[0]
            place = f"topic {message.topic()!r} with key {message.key()!r}"
            return RejectedError(
                f"The broker refuses a record of {place}, so nothing of {self.name!r} was sent: {words(refusal)}",
                hint="Filter such records out, or raise the topic's max.message.bytes.",
            )
        found = meaning(error, f"Sending as {self.name!r}")
        if isinstance(found, FencedError):
            return FencedError(found.message, hint="Another attempt of this task, or another query of the same name.")
        return found

    def _note_refusal(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() in OF_THE_RECORD:
            self._refused.append((error, message))


# A log that takes batches which an engine may run again: what Spark's tasks write records to.


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which batch this is. A batch that is run again has the same, and the one after it has `number` + 1."""

    query: str
    """Whoever counts: a number means nothing to another."""
    number: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one part of a batch."""

    records: int
    is_replayed: bool = False
    """Whether an earlier run of the batch had sent it, so that nothing was sent now."""


class Part(Protocol):
    """One part of a batch: all of it is sent, or nothing.

    Raises `TransientError` if the part may be tried again, `RejectedError` for a record that is refused,
    `GuaranteeError` where the batch is not what it was before.
    """

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Takes the next rows, in order; the id of a row is its place."""

    def commit(self) -> Sent:
        """Makes them visible; returns once that is sure."""

    def abort(self) -> None:
        """Lets go of what is not committed; raises nothing, and may be called at any time."""


class BatchLog(Protocol):
    """Travels pickled to tasks; used by one thread at a time there."""

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        """Begins on the part of a batch that belongs to a lane, and takes the lane from whoever holds it.

        A part that was sent in an earlier run of the batch takes rows and sends none. Where `batch` is None nobody
        knows about earlier runs. `topics` are those of the first rows.
        """


# How far a lane of batches has come, as it stands beside the committed offset, and what that means for a batch.

_MASK = 2**64 - 1


@dataclass(slots=True)
class Digest:
    """What a part of a batch consists of: how many records, and their keys, in whatever order.

    A batch that is run again brings its rows in any order where there was a shuffle, and perhaps other values, say of
    `uuid()`. Other keys or another number of records mean that rows have gone from one part to another. A record
    without a key is known by its value.
    """

    records: int = 0
    keys: int = 0

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Counts rows in."""
        self.records += len(rows)
        known = (row.value or b"" if row.key is None else row.key for row in rows)
        self.keys = (self.keys + sum(map(zlib.crc32, known))) & _MASK


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that a lane has committed."""

    batch: BatchId
    digest: Digest

    def to_text(self) -> str:
        """What is kept beside the committed offset, which is the batch's number + 1."""
        return json.dumps({"query": self.batch.query, "records": self.digest.records, "keys": self.digest.keys})


def progress_of(offset: int, text: str | None) -> Progress | None:
    """What was committed; None where there is nothing."""
    if offset <= 0 or not text:
        return None
    kept = json.loads(text)
    return Progress(BatchId(kept["query"], offset - 1), Digest(kept["records"], kept["keys"]))


def is_done(lane: str, committed: Progress | None, batch: BatchId) -> bool:
    """Whether a lane has sent its part of a batch; raises where the two do not belong together.

    Spark runs again the last batch only. So a number further back is a checkpoint that went back, whose later batches
    may hold other rows than before: to skip them would lose rows, and to send them would double some.
    """
    if committed is None:
        return False
    last = committed.batch
    if last.query != batch.query:
        raise GuaranteeError(
            f"{lane!r} belongs to query {last.query}, which has committed batch {last.number};"
            f" this is batch {batch.number} of query {batch.query}.",
            hint="Two queries must not share a name, and a query with a new checkpoint is a new one: give it another.",
        )
    if last.number > batch.number:
        raise GuaranteeError(
            f"{lane!r} has committed batch {last.number}, and now comes batch {batch.number} again.",
            hint="The checkpoint went back. Restore the right one, or begin anew with another checkpoint and name.",
        )
    return last.number == batch.number


def require_same(lane: str, committed: Progress, found: Digest) -> None:
    """Raises where a batch that was sent before has other rows now."""
    before = committed.digest
    if found != before:
        what = f"{before.records} records, and now {found.records}" if found.records != before.records else "other keys"
        raise GuaranteeError(
            f"Batch {committed.batch.number} had {what} in {lane!r}: rows of it may be lost or doubled.",
            hint="Rows of a lane must be in one Spark partition, and the same when a batch is run again: write"
            " inorder.spark.by_key(df, LANES) as the last step, and let nothing random decide about rows and keys.",
        )
