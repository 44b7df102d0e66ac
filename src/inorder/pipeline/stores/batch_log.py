"""Batches of an engine that may run them again, written to Kafka exactly once: what the sink `inorder.kafka` does.

An engine such as Spark cuts its input into batches and runs parts of them as tasks. It runs a task again when the task
fails, and the whole last batch when the driver fails. A *lane* is a number that each row carries. The rows of a lane
are one part of each batch, and one task sends them.

A row's lane comes from the row, not from the task that has it: Spark may number its tasks differently when it repeats
a batch. Its Kafka source, for example, lists partitions in another order when it finds them in a checkpoint.

**What is authoritative.** The offset that the lane's group has committed: the number of its last batch + 1. It is
committed in the transaction that carries the records. So a part is in Kafka if and only if its number is committed. The
offset belongs to partition 0 of the topic `inorder.spark`, which never holds a record.

**The fence.** Each lane has a transactional id, `inorder.spark.<name>.<lane>`, which the task that begins a part takes
over (`kafka/fenced_producer.py`). The committed number is read after that, so no other attempt can change it.

**Order.** Records of a part are sent in their order, by one producer. The engine begins a batch when the one before is
done. So a key is in order if all its rows of a batch are in one lane, and in order there.

**What must hold of the engine.** The rows of a lane are in one task. A batch that is run again has the same rows, with
the same lanes. Deterministic Spark plans guarantee that, since the extent of a batch is in the checkpoint. It is
checked as far as possible: the number of records and the sum of their keys' checksums (of their values, where they have
no key) are committed beside the number. A lane in two tasks is found in the same way: the second task finds the number
committed, with other rows.

Without a batch's number (a batch write without a name) a part is one transaction and nothing more: a job that is run
again sends everything again.

Failure table:

| what happens                              | what follows                                                          |
|-------------------------------------------|-----------------------------------------------------------------------|
| task killed before its commit             | the next attempt's fence aborts what is open; it sends the part       |
| task killed after its commit              | the next attempt finds the number committed and sends nothing         |
| commit sent, answer lost                  | the attempt fails; the next one reads the number behind its fence     |
| driver killed in mid-batch                | Spark runs the batch again: parts that are committed are skipped      |
| paused task, or a speculative one beside  | the later one fences the other, which can commit nothing              |
| rows come again with other lanes          | `GuaranteeError` from a lane that is committed and has other rows now |
| a lane is in two tasks                    | `GuaranteeError`, or they fence each other until one is through       |
| the checkpoint is lost                    | `GuaranteeError`: the name belongs to the query of that checkpoint    |
| the checkpoint went back                  | `GuaranteeError`: a later batch is committed                          |
| two queries with one name                 | `GuaranteeError` for the second                                       |
| the broker refuses a record               | `RejectedError`; nothing of its part is visible to `read_committed`   |
| stopped in mid-batch for longer than the  | the broker has deleted the number (`offsets.retention.minutes`, a     |
| broker keeps offsets                      | week by default): what the last batch had committed is sent again     |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inorder.kafka.admin import ensure_topic
from inorder.kafka.errors import describe, describe_key, error_of, meaning
from inorder.kafka.fenced_producer import DEFAULTS, TASK_TIMEOUTS, FencedProducer
from inorder.kafka.readers import ANSWER_SECONDS, committed_consumer, read_committed_offsets
from inorder.kafka.sender import RowSender
from inorder.kafka.topic_facts import KnownTopics, TopicLimits
from inorder.model.errors import FencedError, GuaranteeError, InorderError, RejectedError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner

PROGRESS_TOPIC = "inorder.spark"
MOST_QUEUED = 50_000
"""Half of what the client's queue holds, so that a chunk of rows always finds room."""
POLL_SECONDS = 0.05
TRANSACTION_MS = 60_000
"""A part is one transaction, whose time includes computing the rows."""


@dataclass(frozen=True, slots=True)
class BatchId:
    """Identifies a batch. A batch that is run again has the same id, and the one after it has `number` + 1."""

    query: str
    """Numbers of different queries are not comparable."""
    number: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of one part of a batch."""

    records: int
    is_replayed: bool = False
    """Whether an earlier run of the batch had sent it, so that nothing was sent now."""


class Part(Protocol):
    """One part of a batch: all of it is sent, or nothing.

    Raises `TransientError` if the part may be tried again, `RejectedError` for a record that is refused, and
    `GuaranteeError` where the batch is not what it was before.
    """

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Takes the next rows, in order; the id of a row is its place."""

    def commit(self) -> Sent:
        """Makes them visible; returns once that is certain."""

    def abort(self) -> None:
        """Drops what is not committed; raises nothing, and may be called at any time."""


class BatchLog(Protocol):
    """Is pickled and sent to tasks; one thread at a time uses it there."""

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        """Begins the part of a batch that belongs to a lane, and takes the lane from its present holder.

        A part that an earlier run of the batch has sent accepts rows and sends none. If `batch` is None, earlier runs
        are unknown. `topics` are those of the first rows.
        """


@dataclass(frozen=True, slots=True)
class KafkaBatchLog:
    """The lanes of one name."""

    properties: tuple[tuple[str, object], ...] = field(repr=False)
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


class BatchPart:
    """A part that is sent; used once, by one thread."""

    def __init__(
        self,
        properties: Mapping[str, object],
        name: str,
        topics: Collection[str],
        partitioners: Mapping[str, Partitioner],
        batch: BatchId | None = None,
    ) -> None:
        """Takes the lane from its present holder; `topics` are those of the first records."""
        self.name = name
        self._batch = batch
        self._digest = Digest()
        self._properties = properties
        self._group_metadata: object = None
        self._sender = RowSender(partitioners, KnownTopics(properties), noun="row")
        limits = TopicLimits(properties)
        limits.learn(topics)
        self._producer = FencedProducer(
            properties,
            name,
            defaults={**DEFAULTS, "transaction.timeout.ms": TRANSACTION_MS},
            overrides={"batch.size": limits.batch_size},
            timeouts=TASK_TIMEOUTS,
        )

    def progress(self) -> BatchProgress | None:
        """The last batch of the lane; no other task can change it while this one holds the lane."""
        consumer = committed_consumer(self._properties, self.name)
        try:
            # Looked up first, because creating a topic needs a permission that nothing else here does.
            if consumer.list_topics(PROGRESS_TOPIC, timeout=ANSWER_SECONDS).topics[PROGRESS_TOPIC].error is not None:
                ensure_topic(self._properties, PROGRESS_TOPIC, 1)
            [found] = read_committed_offsets(consumer, [TopicPartition(PROGRESS_TOPIC, 0)])
            self._group_metadata = consumer.consumer_group_metadata()
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Reading the last batch of {self.name!r}") from exception
        finally:
            consumer.close()
        return progress_of(found.offset, found.metadata)

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Sends rows; the first call begins the transaction."""
        client = self._producer.client
        try:
            if not self._digest.records:
                self._producer.begin()
            self._digest.add(rows)
            while len(client) > MOST_QUEUED:
                client.poll(POLL_SECONDS)
            self._sender.send(client, rows)
        except KafkaException as exception:
            raise self._give_up(error_of(exception)) from exception

    def commit(self) -> Sent:
        """Commits the records together with the number of the batch; with a batch, `progress` must be called before."""
        try:
            if self._batch is not None:
                progress = BatchProgress(self._batch, self._digest)
                place = TopicPartition(PROGRESS_TOPIC, 0, self._batch.number + 1, progress.to_text())
                self._producer.add_offsets([place], self._group_metadata)
            self._producer.commit()
        except KafkaException as exception:
            raise self._give_up(error_of(exception)) from exception
        return Sent(self._digest.records)

    def abort(self) -> None:
        self._producer.try_abort()

    def _give_up(self, error: KafkaError) -> InorderError:
        """Aborts the transaction unless the client is lost, and says why it failed."""
        if not error.fatal():
            self.abort()
        if self._producer.refused:
            refusal, record = self._producer.refused[0]
            place = f"topic {record.topic()!r} with key {describe_key(record)}"
            return RejectedError(
                f"The broker refuses a record of {place}, so nothing of {self.name!r} was sent: {describe(refusal)}",
                hint="Filter such records out, or raise the topic's max.message.bytes.",
            )
        found = meaning(error, f"Sending as {self.name!r}")
        if isinstance(found, FencedError):
            return FencedError(found.message, hint="Another attempt of this task, or another query of the same name.")
        return found


class _Replayed:
    """A part that was sent before; its rows are counted, and must be the same."""

    def __init__(self, name: str, committed: BatchProgress) -> None:
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


# The progress of a lane as it is kept beside the committed offset, and what it means for a batch.

_MASK = 2**64 - 1


@dataclass(slots=True)
class Digest:
    """Identifies the content of a part: the number of its records, and the sum of their keys' checksums.

    After a shuffle, a batch that is run again brings its rows in any order, and perhaps with other values, for example
    of `uuid()`. Other keys or another number of records mean that rows have moved from one part to another. A record
    without a key is identified by its value.
    """

    records: int = 0
    keys: int = 0

    def add(self, rows: Sequence[OutboxRow]) -> None:
        self.records += len(rows)
        known = (row.value or b"" if row.key is None else row.key for row in rows)
        self.keys = (self.keys + sum(map(zlib.crc32, known))) & _MASK


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The last batch that a lane has committed."""

    batch: BatchId
    digest: Digest

    def to_text(self) -> str:
        """The metadata of the committed offset; the offset itself is the batch's number + 1."""
        return json.dumps({"query": self.batch.query, "records": self.digest.records, "keys": self.digest.keys})


def progress_of(offset: int, text: str | None) -> BatchProgress | None:
    """Decodes a committed offset and its metadata; None where nothing is committed.

    Raises `GuaranteeError` for metadata of another program: whether the batch was sent is unknown then.
    """
    if offset <= 0 or not text:
        return None
    try:
        match json.loads(text):
            case {"query": str() as query, "records": int() as records, "keys": int() as keys}:
                return BatchProgress(BatchId(query, offset - 1), Digest(records, keys))
    except (ValueError, RecursionError):
        pass
    raise GuaranteeError(
        f"The committed offset {offset} has metadata that inorder did not write: {text[:100]!r}.",
        hint="Another program commits offsets in the group of this lane: give the query another name.",
    )


def is_done(lane: str, committed: BatchProgress | None, batch: BatchId) -> bool:
    """Whether a lane has sent its part of a batch; raises where the two do not belong together.

    Spark repeats the last batch only. A smaller number therefore means that the checkpoint went back. Its later batches
    may hold other rows than before: skipping them would lose rows, sending them would duplicate some.
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
            hint="The checkpoint went back. Restore the right one, or start over with another checkpoint and name.",
        )
    return last.number == batch.number


def require_same(lane: str, committed: BatchProgress, found: Digest) -> None:
    """Raises where a batch that was sent before has other rows now."""
    before = committed.digest
    if found != before:
        what = f"{before.records} records, and now {found.records}" if found.records != before.records else "other keys"
        raise GuaranteeError(
            f"Batch {committed.batch.number} had {what} in {lane!r}: rows of it may be lost or doubled.",
            hint="Rows of a lane must be in one Spark partition, and the same when a batch is run again: write"
            " inorder.spark.by_key(df, LANES) as the last step, and let nothing random decide about rows and keys.",
        )
