"""One part of a batch, its lane held by a transactional id (`batch_log.py` has the protocol)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.batch_progress import Digest, Progress, progress_of
from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.committed import committed_consumer
from inorder.kafka.committing import commit
from inorder.kafka.copy_lane import ABORT_SECONDS, ANSWER_SECONDS, COMMIT_SECONDS, ask_committed
from inorder.kafka.errors import OF_THE_RECORD, error_of, meaning, words
from inorder.kafka.known_topics import KnownTopics
from inorder.kafka.sender import Sender
from inorder.kafka.shard_log import DEFAULTS, OURS
from inorder.kafka.topic_limits import TopicLimits
from inorder.kafka.topics import ensure_topic
from inorder.model.errors import FencedError, InorderError, RejectedError
from inorder.model.partition import Partitioner
from inorder.ports.batch_log import BatchId, Sent
from inorder.ports.outbox_store import OutboxRow

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
