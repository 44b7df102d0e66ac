"""The shard log of delivery `at-least-once`: every record at least once, and in order per key, without transactions.

A batch is sent by an idempotent producer and is done when every record is acknowledged. Then its rows are purged. There
is no fence and no marker, so a new owner does not know what its predecessor had published and not yet purged.

What is authoritative

- **What is still to be published: the outbox table.** A row that is there may have been published already.
- **What was delivered: the broker's acknowledgements**, for as long as this producer lives.

Invariants

1. A row is purged only after its record is known to be acknowledged. So nothing is lost.
2. While a record is not acknowledged, no later one of its partition is taken. The broker checks sequence numbers, which
   also stops what was on the way behind a record that it refused; `enable.gapless.guarantee` ends the producer then,
   before it numbers the rest again; and where the broker does not know the producer yet, one record goes alone first
   (`FirstContact`). So nothing overtakes, with any number in flight.
3. The producer retries without end and never gives a record up by itself: others would pass one that timed out.
   `publish` returns once a second that a batch is still under way, and the caller continues to wait for the same batch.
   An outage of any length therefore repeats nothing.
4. While a batch is under way the lease is checked all the time, in memory. When it ends, which is before another
   instance can have it (`relay/leadership/lease.py`), what is still queued is dropped and nothing more is sent.
5. After a refusal it is known which rows arrived: all that were queued, less all that were reported as failed. They are
   purged, and only the others are sent again.

When is something published twice?

| the owner …                                | then                                                                    |
|---|---|
| dies, or is stopped while a batch is sent  | the next owner sends again what had arrived and was not purged          |
| loses its lease with a batch under way     | the same; it drops the rest of the batch at once                        |
| meets a refusal while the broker is slow   | what was on the way for longer than `GRACE_SECONDS` is sent again       |
| is paused and wakes up later               | see below                                                               |

A repeat is a run of records in their order, and the first copy of each record comes after the first copies of all
earlier ones of its key.

**What a paused owner can do.** Nothing stops an owner that was paused, by a debugger or a swapping machine, while
another took over. When it wakes up, its producer sends what it had in its queue, until the loop notices that the lease
is gone. These are old records in their order, between those of the new owner: repeats, among which an older record may
come after a newer one of its key. The same holds for a request that was in the network when its owner died.

So the guarantee in this mode is about first copies: the first copy of a record comes after those of all earlier records
of its key, from any owner, since each owner sends in order and begins with what is in the table. A reader that knows
which version of a key it has seen, and ignores older ones, sees every key in order. Readers that cannot do that need
`exactly-once`, where the broker's fence refuses all repeats.

**Why an exceeded row needs no marker here.** With transactions, the decision to set a row aside is committed under the
fence before the row is moved, so that a fenced owner moves nothing. Without a fence a marker would prove nothing, so
the row is just moved, in one database transaction. At worst an owner that was paused moves a row that its successor is
about to publish: the row is then both published and exceeded, and a retry of it is one more repeat.

**Which record was it?** A broker refuses whole batches of the client. If they were too large, the limit of the topic
is learnt, and the next producer makes smaller batches (`TopicLimits`). If the limit cannot be read, the refused rows
become suspects, and the next batch with a suspect is sent by a careful producer, one record per request: it finds the
refused record at once, and records that were too large only together go through. A new producer waits half a second for
its id, so searching by halves would be slow.

**A topic that was deleted** would be waited for without end. So the topics of a batch are looked up before it is sent
(`KnownTopics`) and again whenever it is late. If one is missing, or we may not write to it, the producer is given up;
the error names the topic, and the delivery the rows of others that have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Producer

from inorder.kafka.errors import CLIENT_LOG, RECORD_ERRORS, TOPIC_ERRORS, UNANSWERED_ERRORS, describe, topic_unavailable
from inorder.kafka.fenced_producer import REQUIRED
from inorder.kafka.sender import DeliveryTracker, FirstContact, RowSender, with_ids
from inorder.kafka.shard_log import Abandoned, Delivered, Delivery, Incomplete
from inorder.kafka.topic_facts import KnownTopics, TopicLimits, keep_to_named
from inorder.model.errors import RejectedError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner

PATIENCE_SECONDS = 1.0
"""How long `publish` waits before the caller can check its lease, which lasts three seconds at least."""
GRACE_SECONDS = 0.2
"""After a failure, how long to wait for the answers to other records that are on the way."""
PURGE_SECONDS = 5.0
STEP_SECONDS = 0.001
"""Between two polls: the client reports failures only, so that success costs nothing."""
LARGEST_RECORD = 1_000_000

DEFAULTS: Mapping[str, object] = {
    # Rows come in batches, each of which is waited for, so lingering only costs time.
    "linger.ms": 0,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 2_000_000,
}
"""Properties that users may change."""

UNBOUNDED_RETRIES: Mapping[str, object] = {
    "enable.gapless.guarantee": True,
    # Without end: a record that times out is no gap to the client, and would be overtaken.
    "message.timeout.ms": 0,
    "message.send.max.retries": 2_147_483_647,
}
"""Properties that invariants 2 and 3 depend on."""


@dataclass(slots=True)
class _UnderWay:
    """One batch between its first record and its last answer."""

    rows: Sequence[OutboxRow]
    ids: list[int]
    waves: list[list[OutboxRow]]
    wave: list[OutboxRow] = field(default_factory=list)
    tracker: DeliveryTracker = field(default_factory=DeliveryTracker)
    refusal: RejectedError | TransientError | None = None
    is_late: bool = False
    """Whether something may have been sent more than once already."""


class IdempotentShardLog:
    """Publishes the batches of one shard without a fence; a `ShardLog` for delivery `at-least-once`."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        partitioners: Mapping[str, Partitioner] | None = None,
        holds: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        grace_seconds: float = GRACE_SECONDS,
        id_header: str = "",
        named_topics: Collection[str] = (),
    ) -> None:
        """`holds` says whether this instance may still own the shard; it is called while a batch is under way.

        `id_header` is the name of the header with the id of a row; without a name there is none. `named_topics` are
        topics of the settings, which the broker may create.
        """
        self._properties = keep_to_named(properties, named_topics)
        self._id_header = id_header
        self._holds = holds
        self._clock = clock
        self._grace_seconds = grace_seconds
        largest = int(str(properties.get("message.max.bytes", LARGEST_RECORD)))
        self._topics = KnownTopics(self._properties, named=named_topics, answer_seconds=PATIENCE_SECONDS)
        self._limits = TopicLimits(self._properties)
        self.partitioners = dict(partitioners or {})
        self._sender = RowSender(self.partitioners, self._topics, together_bytes=largest // 2)
        self._contact = FirstContact(self.partitioners, clock=clock)
        self._is_owner = False
        self._producer: Producer | None = None
        self._under_way: _UnderWay | None = None
        self._suspects: set[int] = set()
        self._is_careful = False

    def take_over(self) -> bytes | None:
        """Begins with a new producer; there is no marker, and no other owner is fenced."""
        self.close()
        self._is_owner = True
        return None

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - there is no marker here
        """Sends the rows, or continues to wait for them if they are under way."""
        if not self._is_owner:
            raise UnknownOutcomeError("The shard was not taken over.")
        if not rows:
            return Delivered()
        ids = [row.id for row in rows]
        if self._under_way is not None and self._under_way.ids != ids:
            raise UnknownOutcomeError("Another batch is still under way.")
        try:
            if self._under_way is None:
                rows = with_ids(rows, self._id_header)
                self._limits.require(rows)
            producer = self._producer_for(ids)
            under_way = self._under_way = self._under_way or self._begin(producer, rows)
        except (RejectedError, TransientError) as error:
            return Incomplete(error)
        return self._finish(producer, under_way, self._clock() + PATIENCE_SECONDS)

    def give_up(self) -> Abandoned:
        """Drops the batch that is under way, if there is one."""
        if self._producer is None or self._under_way is None:
            return Abandoned()
        return self._abandon(self._producer, self._under_way)

    def close(self) -> None:
        """Drops the producer and everything that it has not sent yet."""
        self._is_owner = False
        if self._producer is not None:
            self._producer.purge()
            self._drain(self._producer, GRACE_SECONDS)
        self._drop()

    def _producer_for(self, ids: Sequence[int]) -> Producer:
        careful = not self._suspects.isdisjoint(ids)
        if self._producer is not None and careful != self._is_careful:
            self._drop()
        if self._producer is None:
            one_by_one = {"batch.num.messages": 1} if careful else {}
            packing = {"batch.size": self._limits.batch_size, **one_by_one}
            settings = {**DEFAULTS, **self._properties, **REQUIRED, **UNBOUNDED_RETRIES, **packing}
            self._producer = Producer(settings, logger=CLIENT_LOG)
            self._is_careful = careful
        return self._producer

    def _drop(self) -> None:
        self._producer = None
        self._under_way = None
        self._topics.doubt()
        self._contact.forget()

    def _begin(self, producer: Producer, rows: Sequence[OutboxRow]) -> _UnderWay:
        topics = {row.topic for row in rows}
        self._topics.require(producer, rows, topics)
        waves = self._contact.waves(rows, self._topics.counts(topics))
        return _UnderWay(rows, [row.id for row in rows], waves)

    def _finish(self, producer: Producer, under_way: _UnderWay, deadline: float) -> Delivery:
        """Sends wave after wave, each when the one before is acknowledged, until all are or one fails."""
        while True:
            if failure := self._await(producer, under_way, deadline):
                return failure
            self._contact.note_acknowledged(under_way.wave)
            if not under_way.waves or under_way.refusal is not None:
                break
            if not self._holds():
                return self._after_lost_lease(producer, under_way)
            under_way.wave = under_way.waves.pop(0)
            try:
                self._sender.send(producer, under_way.wave, under_way.tracker)
            except (RejectedError, TransientError) as error:
                # What was queued before it is on its way; nothing behind it is.
                under_way.refusal, under_way.wave = error, []
        self._under_way = None
        self._suspects.difference_update(under_way.ids)
        if under_way.refusal is not None:
            return Incomplete(under_way.refusal, under_way.tracker.delivered())
        return Delivered()

    def _await(self, producer: Producer, under_way: _UnderWay, deadline: float) -> Incomplete | None:
        """Waits until nothing is under way; returns why it stopped waiting before."""
        while len(producer) and not under_way.tracker.failed:
            _poll(producer)
            if not self._holds():
                return self._after_lost_lease(producer, under_way)
            if self._clock() > deadline:
                return self._after_timeout(producer, under_way)
        return self._after_failure(producer, under_way) if under_way.tracker.failed else None

    def _after_lost_lease(self, producer: Producer, under_way: _UnderWay) -> Incomplete:
        """Sends nothing more of the batch: another instance may have begun, and no fence would stop us."""
        known = self._abandon(producer, under_way)
        left = len(under_way.ids) - len(known.delivered)
        return Incomplete(TransientError(f"The lease is gone; {left} records of the batch are given up."), *known)

    def _after_timeout(self, producer: Producer, under_way: _UnderWay) -> Incomplete:
        """The batch stays under way, unless a topic of it is gone: the client would wait for that without end."""
        under_way.is_late = True
        lost = self._topics.blame(producer, under_way.rows)
        if lost is not None:
            return Incomplete(lost, *self._abandon(producer, under_way))
        all_rows = len(under_way.ids)
        left = min(len(producer), all_rows)  # the length also counts events of the client
        return Incomplete(TransientError(f"Of {all_rows} records {left} are not acknowledged yet."), is_under_way=True)

    def _after_failure(self, producer: Producer, under_way: _UnderWay) -> Incomplete:
        """What the failed records mean, and which others arrived. The next batch gets a producer of its own."""
        failed, rows = under_way.tracker.failed, under_way.rows
        known = self._abandon(producer, under_way)
        refused = {id: error for id, error in failed.items() if error.code() in RECORD_ERRORS}
        if refused:
            return Incomplete(self._after_refusal(rows, refused, known.delivered), *known)
        row = next((row for row in rows if row.id in failed and failed[row.id].code() in TOPIC_ERRORS), None)
        if row is not None:
            self._topics.suspect([row.topic], failed[row.id])
            return Incomplete(topic_unavailable(row.topic, failed[row.id]), *known)
        first = next(iter(failed.values()))
        return Incomplete(TransientError(f"{len(failed)} records: {describe(first)}"), *known)

    def _after_refusal(
        self, rows: Sequence[OutboxRow], refused: Mapping[int, KafkaError], arrived: frozenset[int]
    ) -> RejectedError | TransientError:
        """Names the refused row if it is known which one it is, or makes the next batches smaller."""
        row_id, error = next(iter(refused.items()))
        text = f"{len(refused)} records from outbox row {row_id} on were refused: {describe(error)}"
        guilty, learnt = self._limits.judge([row for row in rows if row.id in refused], error)
        if guilty is None and learnt:
            text = f"{text} Batches have {self._limits.batch_size} bytes at most from now on."
            return TransientError(text)
        self._suspects.update(refused if guilty is None else ())
        self._suspects -= arrived | ({guilty.id} if guilty else set())
        return RejectedError(text, row_id=None if guilty is None else guilty.id)

    def _abandon(self, producer: Producer, under_way: _UnderWay) -> Abandoned:
        """Drops the producer, and says which rows it has delivered as far as that is known."""
        tracker, is_accounted = under_way.tracker, self._purge(producer)
        self._drop()
        if not is_accounted:
            return Abandoned(in_doubt=frozenset(row.id for row in tracker.queued))
        # What waits in the queue was never sent, unless the client has put it back there for another try.
        unknown = UNANSWERED_ERRORS | ({KafkaError._PURGE_QUEUE} if under_way.is_late else set())
        unanswered = frozenset(id for id, error in tracker.failed.items() if error.code() in unknown)
        return Abandoned(tracker.delivered(), unanswered)

    def _purge(self, producer: Producer) -> bool:
        """Waits for answers that are about to come, drops the rest, and says whether all records are accounted for."""
        producer.purge(in_flight=False)
        self._drain(producer, self._grace_seconds)
        producer.purge()
        self._drain(producer, PURGE_SECONDS)
        return not len(producer)

    def _drain(self, producer: Producer, seconds: float) -> None:
        deadline = self._clock() + seconds
        while len(producer) and self._clock() < deadline:
            _poll(producer)


def _poll(producer: Producer) -> None:
    try:
        producer.poll(STEP_SECONDS)
    except KafkaException:
        # A fatal error is raised here first; the records it concerns are reported after it, each with its reason.
        return
