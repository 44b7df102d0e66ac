"""What is known of the topics that rows go to: whether they can be written to, and how large a batch they accept.

**Metadata** (`KnownTopics`) is requested once a minute, and after every error. One topic that is deleted, or that we
may not write to, must not delay the others. The client does not help: it waits half a minute for a topic that the
broker does not know, in case it is about to appear, and a transaction that is refused for one of its topics makes the
producer unusable. So each topic is looked up before its first use, which is one small request per topic, and nothing of
a batch is sent while one of its topics is known to be unavailable.

The request creates the topic where the broker has auto-creation enabled. Where the settings name topics, another one
that does not exist is not created: its name may be mistyped, and its records would be where no one reads them while
their rows are gone (`keep_to_named`). The broker answers "unknown" meanwhile, as it does for a topic that will never
exist. So a topic gets a second to appear when it is first missing; later requests do not wait for
it. Metadata does not show whether we may write to a topic that we may describe. That is requested only for
the topics of a batch that was refused for lack of permission.

**Limits** (`TopicLimits`) are learnt when a topic first refuses a batch. A broker measures a batch of records as a
whole. So many small records that the client has packed together can be too large for a topic whose `max.message.bytes`
is low, and one large record is refused together with its neighbours. Once a limit is known, `batch.size` is kept below
the smallest one. Then only a record that is too large by itself can be refused, and it is alone in its batch, so that
it is known which one it was.

Compression may make a record fit that looks too large. So where the client compresses, each such record is sent once;
what the broker refused is refused here from then on. Before that the limit is read again, since it may have been
raised. A client that may not read a topic's settings learns nothing, and continues as if there were no limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from inorder.kafka.admin import Cluster, let_broker_create
from inorder.kafka.errors import BEING_MADE, SIZE_ERRORS, error_of, row_error
from inorder.model.errors import ConfigurationError, InorderError, RejectedError, TopicUnavailableError
from inorder.model.message import OutboxRow
from inorder.model.names import suggest

TRUSTED_SECONDS = 60.0
UNANSWERED_SECONDS = 1.0
"""How long the last answer stays valid when the broker does not answer a new request."""
BLAME_SECONDS = 0.5
"""How long to wait for an answer after a failure, which more likely means that the broker is away."""
MAKING_SECONDS = 1.0
MAKING_STEP_SECONDS = 0.02


def keep_to_named(properties: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """The properties of a client that creates no topic beside those that the settings name, if these name any.

    >>> keep_to_named({"linger.ms": 5}, ["orders"]), keep_to_named({"linger.ms": 5}, [])
    ({'allow.auto.create.topics': False, 'linger.ms': 5}, {'linger.ms': 5})
    """
    return {"allow.auto.create.topics": False, **properties} if named else {**properties}


class KnownTopics:
    """The metadata of the topics that one shard log writes to."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        named: Collection[str] = (),
        answer_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`named` are topics that the settings name, which the broker may create."""
        self._properties = properties
        self._named = frozenset(named)
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._counts: dict[str, int] = {}
        # Each client caches metadata by itself, and does not send to a topic that it remembers as missing.
        self._trusted_until: dict[Producer, dict[str, float]] = {}
        self._missing: set[str] = set()
        self._near_names: dict[str, str] = {}
        self._perhaps_closed: set[str] = set()

    def require(
        self, client: Producer, rows: Sequence[OutboxRow], topics: Collection[str], *, seconds: float | None = None
    ) -> None:
        """Raises `TopicUnavailableError` for the first of the rows' topics that cannot be written to.

        Costs nothing while all are trusted. An invalid name is a `RejectedError` of the first row that has it. A broker
        that does not answer is an error only for topics that were never found before.
        """
        asked = self._untrusted(client, topics)
        deadline = self._clock() + MAKING_SECONDS
        while asked:
            try:
                errors = self._look_at(client, asked, seconds or self._answer_seconds)
            except KafkaException as exception:
                self._without_answer(client, rows, asked, error_of(exception))
                return
            asked = list(errors)
            late = self._missing if self._clock() < deadline else errors.keys()
            for topic, error in errors.items():
                if error.code() not in BEING_MADE:
                    raise row_error(_first_of(rows, topic), error)
                if topic in late:
                    self._missing.update(late)
                    near = self._near(client, topic, seconds or self._answer_seconds)
                    raise row_error(_first_of(rows, topic), error, suggestion=near)
            time.sleep(MAKING_STEP_SECONDS if asked else 0)

    def count(self, topic: str) -> int:
        """The number of partitions of a topic that was required before."""
        return self._counts[topic]

    def counts(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: self._counts[topic] for topic in topics}

    def blame(
        self, client: Producer, rows: Sequence[OutboxRow], error: KafkaError | None = None
    ) -> TopicUnavailableError | None:
        """Returns the error of the topic that explains why the rows could not be sent, if one does."""
        topics = {row.topic for row in rows}
        self.suspect(topics, error)
        try:
            self.require(client, rows, topics, seconds=BLAME_SECONDS)
        except TopicUnavailableError as found:
            return found
        except InorderError:
            return None
        return None

    def suspect(self, topics: Collection[str], error: KafkaError | None) -> None:
        """Looks all topics up again, and the permissions on these if `error` says that they may be missing."""
        self.doubt()
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._perhaps_closed.update(topics)

    def doubt(self) -> None:
        """Looks every topic up again before its next use."""
        self._trusted_until.clear()

    def _untrusted(self, client: Producer, topics: Collection[str]) -> list[str]:
        now, trusted_until = self._clock(), self._trusted_until.get(client, {})
        return [topic for topic in topics if trusted_until.get(topic, now) <= now]

    def _trust(self, client: Producer, topic: str, seconds: float) -> None:
        self._trusted_until.setdefault(client, {})[topic] = self._clock() + seconds

    def _look_at(self, client: Producer, topics: Collection[str], seconds: float) -> dict[str, KafkaError]:
        found = {topic: self._look(client, topic, seconds) for topic in topics}
        return {topic: error for topic, error in found.items() if error is not None}

    def _look(self, client: Producer, topic: str, seconds: float) -> KafkaError | None:
        found = client.list_topics(topic, timeout=seconds).topics[topic]
        error: KafkaError | None = found.error
        if error is not None:
            if error.code() in BEING_MADE and topic in self._named and topic not in self._missing:
                let_broker_create(self._properties, topic)
            return error
        if topic in self._perhaps_closed and not self._is_writable(topic):
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        self._perhaps_closed.discard(topic)
        self._missing.discard(topic)
        self._counts[topic] = len(found.partitions)
        self._trust(client, topic, TRUSTED_SECONDS)
        return None

    def _near(self, client: Producer, topic: str, seconds: float) -> str:
        """A topic that exists and was probably meant, as the end of a sentence; looked up once."""
        if topic not in self._near_names:
            try:
                names = [name for name in client.list_topics(timeout=seconds).topics if name != topic]
            except KafkaException:
                return "."
            self._near_names[topic] = suggest(topic, names)
        return self._near_names[topic]

    def _is_writable(self, topic: str) -> bool:
        try:
            return Cluster(self._properties).is_writable(topic)
        except ConfigurationError:
            return False
        except InorderError:
            return True  # unknown; the next refusal shows it

    def _without_answer(
        self, client: Producer, rows: Sequence[OutboxRow], asked: Sequence[str], error: KafkaError
    ) -> None:
        new = next((topic for topic in asked if topic not in self._counts), None)
        if new is not None:
            raise row_error(_first_of(rows, new), error)
        for topic in asked:
            self._trust(client, topic, UNANSWERED_SECONDS)


def _first_of(rows: Sequence[OutboxRow], topic: str) -> OutboxRow:
    return next(row for row in rows if row.topic == topic)


BATCH_OVERHEAD_BYTES = 61
FIXED_FIELDS_BYTES = 3
"""Attributes, and the deltas of time and offset, which are zero in the first record of a batch."""
DEFAULT_BATCH_SIZE = 1_000_000


class TopicLimits:
    """The batch limits of the topics that one shard log writes to; it outlives its producers."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        self._properties = properties
        self._batch_size = int(str(properties.get("batch.size", DEFAULT_BATCH_SIZE)))
        compression = properties.get("compression.type", properties.get("compression.codec", "lz4"))
        self._compresses = compression != "none"
        self._limits: dict[str, int] = {}
        self._refused: set[tuple[int, int]] = set()

    def learn(self, topics: Collection[str]) -> bool:
        """Reads the limits of topics; returns True if producers must make smaller batches than before."""
        before = self.batch_size
        for topic in topics:
            try:
                self._limits[topic] = int(Cluster(self._properties).topic_settings(topic)["max.message.bytes"])
            except InorderError:
                continue
        return self.batch_size < before

    @property
    def batch_size(self) -> int:
        """The largest batch that producers may make, in bytes."""
        return min([self._batch_size, *self._limits.values()])

    def judge(self, refused: Sequence[OutboxRow], error: KafkaError) -> tuple[OutboxRow | None, bool]:
        """Returns which of the refused rows is to blame, if that is clear, and whether batches must become smaller."""
        is_for_size = error.code() in SIZE_ERRORS
        learnt = is_for_size and self.learn({row.topic for row in refused})
        guilty = refused[0] if len(refused) == 1 else None
        if guilty is None and not learnt:
            # Batches kept the limit, so each of these was alone in its batch.
            guilty = next((row for row in refused if self._is_above(row)), None)
        if guilty is not None and is_for_size:
            self._refused.add((guilty.id, size_of(guilty)))
        return guilty, learnt

    def require(self, rows: Sequence[OutboxRow]) -> None:
        """Raises `RejectedError` for the first row that its topic is sure to refuse."""
        if not self._limits:
            return
        for row in rows:
            if self._is_hopeless(row):
                self.learn([row.topic])
                if self._is_hopeless(row):
                    raise self._refusal(row)

    def _is_above(self, row: OutboxRow) -> bool:
        limit = self._limits.get(row.topic)
        return limit is not None and size_of(row) > limit

    def _is_hopeless(self, row: OutboxRow) -> bool:
        return self._is_above(row) and (not self._compresses or (row.id, size_of(row)) in self._refused)

    def _refusal(self, row: OutboxRow) -> RejectedError:
        sizes = f"{size_of(row)} bytes; topic {row.topic!r} takes {self._limits[row.topic]}"
        text = f"Outbox row {row.id} has {sizes} (MSG_SIZE_TOO_LARGE)."
        return RejectedError(text, hint="Raise the topic's max.message.bytes, or repair the row.", row_id=row.id)


def size_of(row: OutboxRow) -> int:
    """The size in bytes of an uncompressed batch with this row alone, which is what the broker measures."""
    fields = [row.key, row.value, *(part for name, value in row.headers for part in (name.encode(), value))]
    record = FIXED_FIELDS_BYTES + sum(_field(field) for field in fields) + _varint(len(row.headers))
    return BATCH_OVERHEAD_BYTES + _varint(record) + record


def _field(content: bytes | None) -> int:
    """The size of a length and the content; the length of null is -1."""
    return _varint(-1) if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """The size of a number in Kafka's records: zigzag encoding, seven bits per byte."""
    folded = 2 * number if number >= 0 else -2 * number - 1
    return max(1, (folded.bit_length() + 6) // 7)
