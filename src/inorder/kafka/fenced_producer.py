"""The transactional producer: one holder per transactional id, and transactions that are committed or have no effect.

**The fence.** Constructing a `FencedProducer` calls `init_transactions`. The broker completes or aborts the transaction
that the previous holder of the id left open, raises the epoch of the id, and refuses everything that an earlier holder
sends from then on. Whatever is committed under the id (a marker, an offset, a record) must therefore be read *after*
the constructor returns: then no earlier holder can change it any more.

**The outcome of a transaction.** A record is visible to readers with `read_committed` if and only if the broker has
committed its transaction. What the producer knows about that, by the call that failed:

| call                          | error                        | outcome                                               |
|-------------------------------|------------------------------|-------------------------------------------------------|
| begin, produce, `add_offsets` | not fatal                    | nothing is visible; the transaction must be aborted   |
| commit                        | requires an abort            | nothing is visible; the transaction must be aborted   |
| commit                        | retriable until the time-out | unknown: the broker may complete it at any moment     |
| any                           | fatal, fenced                | another holder has the id; what was not committed     |
|                               |                              | before is never visible                               |
| any                           | fatal, other                 | unknown; the client cannot be used any more           |
| abort                         | any                          | nothing is visible; the transaction may stay open     |

**An unknown outcome** is resolved in one way only: take the id again, then read what was committed. Each user commits
something that answers the question together with its records: the relay a marker, a copy the offset of its source, a
batch of Spark its number.

**An open transaction** keeps readers in front of it, so it is aborted as soon as it is known to fail. If the abort
fails as well, the next holder's fence ends it, or the broker does after `transaction.timeout.ms`.

**Requests that arrive late.** The client repeats a request that is not answered, and the first copy may still be on its
way: in the network, or in the queue of a broker that was paused. The broker tells two transactions of one epoch apart
by nothing (the client speaks EndTxn 1, without the new epoch per transaction of KIP-890). What a late copy can do, if
the same epoch is used for another transaction:

| late request        | what it would do to the next transaction                   | why it does not                 |
|---------------------|------------------------------------------------------------|---------------------------------|
| EndTxn, commit      | commits the part that has arrived, and the rest separately | the rule below                  |
| EndTxn, abort       | aborts the part that has arrived; the rest is committed    | the rule below                  |
| TxnOffsetCommit     | sets the offsets of the group back                         | the rule below                  |
| AddPartitionsToTxn, | adds a partition without records, or begins an empty       | harmless: our next one          |
| AddOffsetsToTxn     | transaction                                                | continues it, or it times out   |
|                     |                                                            | and we are fenced               |
| Produce             | appends its records again                                  | their sequence numbers are      |
|                     |                                                            | used up; or the client gave the |
|                     |                                                            | epoch up along with them        |
| InitProducerId      | aborts what is open, and raises the epoch                  | harmless: we are fenced         |

*The rule*: an epoch is used for another transaction only if each EndTxn and TxnOffsetCommit of the last one was sent
exactly once. The client does not say whether it repeated a request, but it never repeats one at once: it waits
`retry.backoff.ms`, less 20 % of jitter, before it sends an EndTxn again (`rd_kafka_buf_retry`), and half a second for
a TxnOffsetCommit, whatever the reason. So a call that returns with success in less time has sent its request once, and
the broker has answered that one. If it takes longer, or fails, the producer `is_spent`: `begin` raises, and the owner
takes the id again, which raises the epoch. The broker then refuses what arrives late by its old epoch. Both times are
read from the same monotonic clock, and a pause of this process only makes a call longer: the rule errs to the safe
side. Records are acknowledged before the measured call begins, so that it is one round trip; a retry waits
`SHORTEST_BACKOFF_MS` at least, so that round trips that are taken for retries are rare.

*If the process dies* before it takes the id again, its successor does: it initialises its ids before it reads what was
committed. A late request that arrives before that finds the transaction it belongs to, or none; one that arrives
later is refused.

*What is assumed of brokers*: `transaction.partition.verification.enable` is on, the default since Kafka 3.6. Without it
a partition accepts a late Produce or TxnOffsetCommit of an old epoch as long as it has seen no newer one.

**Refused records.** The client reports a record that the broker refuses for its content only to the delivery callback;
the commit then fails with an error that names no record. `refused` keeps these reports for the current transaction.

The methods raise the client's `KafkaException`, because only the caller knows what it was sending and which of its
records or topics explains the error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.errors import CLIENT_LOG, RECORD_ERRORS, error_of, meaning
from inorder.model.errors import UnknownOutcomeError

log = logging.getLogger("inorder.kafka")

DEFAULTS: Mapping[str, object] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    # The open transaction of a paused holder keeps readers back until the broker ends it.
    "transaction.timeout.ms": 10_000,
}
"""Properties that users may change."""

REQUIRED: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    # JVM clients and this one must agree on the partition of a key.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}
"""Properties that the protocols depend on; they override those of the user."""

NO_PROPERTIES: Mapping[str, object] = {}

SHORTEST_BACKOFF_MS = 500
"""The least `retry.backoff.ms`: longer than nearly every round trip, short beside the fail-over of a broker."""
LONGEST_BACKOFF_MS = 1_000
"""`retry.backoff.max.ms` unless the user sets more; the client's own default."""
UNJITTERED_SHARE = 0.75
"""A retry waits 80 % of the back-off at least."""
OFFSETS_SECONDS = 0.375
"""The same share of the half second before a TxnOffsetCommit is repeated."""
FLUSH_SECONDS = 0.002
"""`flush` notices the last acknowledgement within 10 ms, and one that ends sooner asks again."""


class Timeouts(NamedTuple):
    """How long each call waits, in seconds."""

    init: float = 30.0
    commit: float = 20.0
    """For the acknowledgements of the records and the answer to the commit together."""
    look: float = 2.0
    """Between two calls of a commit's `meanwhile`."""
    abort: float = 15.0


TASK_TIMEOUTS = Timeouts(commit=60.0, abort=5.0)
"""For work that an engine repeats as a whole when it fails, so that waiting longer for a commit is cheaper."""


class RefusedRecord(NamedTuple):
    """A record that the broker refused for its content."""

    error: KafkaError
    record: Message


class ClientBackoff(NamedTuple):
    """How long the client waits before it repeats a request."""

    first_ms: int
    most_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> ClientBackoff:
        """The user's, where they are longer than ours."""
        first = max(_number(properties.get("retry.backoff.ms")), SHORTEST_BACKOFF_MS)
        most = max(_number(properties.get("retry.backoff.max.ms")), LONGEST_BACKOFF_MS)
        return cls(first, max(first, most))

    @property
    def properties(self) -> Mapping[str, object]:
        return {"retry.backoff.ms": self.first_ms, "retry.backoff.max.ms": self.most_ms}

    @property
    def end_seconds(self) -> float:
        """An EndTxn that is answered in less time was sent once."""
        return UNJITTERED_SHARE * self.first_ms / 1000

    @property
    def offsets_seconds(self) -> float:
        """The same for offsets: two requests, of which the second is repeated after a time that is no property."""
        return min(self.end_seconds, OFFSETS_SECONDS)


class FencedProducer:
    """Holds one transactional id; used by one thread, one transaction after the other."""

    def __init__(
        self,
        properties: Mapping[str, object],
        transactional_id: str,
        *,
        defaults: Mapping[str, object] = DEFAULTS,
        overrides: Mapping[str, object] = NO_PROPERTIES,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - immutable
    ) -> None:
        """Takes the id over, or raises the error of `meaning`. `overrides` are stronger than all other properties."""
        self.refused: list[RefusedRecord] = []
        self.is_spent = False
        """Whether a request of this epoch may still reach the broker, so that the id must be taken over again."""
        self._id = transactional_id
        self._undelivered: list[KafkaError] = []
        self._timeouts = timeouts
        self._backoff = ClientBackoff.of({**defaults, **properties, **overrides})
        # The callback must not refer to `self`: without a cycle, the client ends as soon as its producer is dropped.
        on_delivery = partial(_note_failure, self.refused, self._undelivered)
        ours = {**REQUIRED, "transactional.id": transactional_id, "on_delivery": on_delivery, **overrides}
        self.client = Producer({**defaults, **properties, **ours, **self._backoff.properties}, logger=CLIENT_LOG)
        try:
            self.client.init_transactions(timeouts.init)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {transactional_id!r}") from exception

    def begin(self) -> None:
        if self.is_spent:
            raise UnknownOutcomeError(f"A request of {self._id!r} may still be on its way: take it over again.")
        self.refused.clear()
        self._undelivered.clear()
        self.client.begin_transaction()

    def add_offsets(self, offsets: Sequence[TopicPartition], group_metadata: object) -> None:
        """Commits the offsets of a consumer group if and only if the transaction is committed."""
        with self._answered_within(self._backoff.offsets_seconds):
            self.client.send_offsets_to_transaction(list(offsets), group_metadata, self._timeouts.commit)

    def commit(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Waits until all records are acknowledged, then commits; raises the client's error if that fails.

        `meanwhile` is called from time to time while records are not acknowledged.
        """
        deadline = time.monotonic() + self._timeouts.commit
        self._await_acknowledgements(deadline, meanwhile)
        if self._undelivered:
            # The client refuses to commit, and sends nothing.
            self.client.commit_transaction(self._timeouts.commit)
        with self._answered_within(self._backoff.end_seconds):
            self._end(deadline)

    def _await_acknowledgements(self, deadline: float, meanwhile: Callable[[], object]) -> None:
        look = time.monotonic() + self._timeouts.look
        while self.client.flush(FLUSH_SECONDS):
            now = time.monotonic()
            if now > deadline:
                text = "records are not acknowledged"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, txn_requires_abort=True))
            if now > look:
                meanwhile()
                look = now + self._timeouts.look

    def _end(self, deadline: float) -> None:
        """Calls commit again while its error is retriable: the client then continues to wait for the same commit."""
        while True:
            try:
                self.client.commit_transaction(max(deadline - time.monotonic(), self._backoff.end_seconds))
                return
            except KafkaException as exception:
                if not error_of(exception).retriable() or time.monotonic() > deadline:
                    raise

    def abort(self) -> None:
        with self._answered_within(self._backoff.end_seconds):
            self.client.abort_transaction(self._timeouts.abort)

    def try_abort(self) -> KafkaError | None:
        """Aborts so that readers go on at once; where that fails a fence or time-out must do it.

        Returns why it failed. Of a client that is lost this is the reason, which `produce` does not give (`_FATAL`).
        """
        try:
            self.abort()
        except KafkaException as exception:
            return error_of(exception)
        return None

    @contextmanager
    def _answered_within(self, seconds: float) -> Iterator[None]:
        """The producer is spent unless the call succeeds before the client could have repeated its request."""
        was_spent, began = self.is_spent, time.monotonic()
        self.is_spent = True
        yield
        took = time.monotonic() - began
        self.is_spent = was_spent or took >= seconds
        if self.is_spent and not was_spent:
            log.info("kafka.answer_was_late", extra={"transactional_id": self._id, "seconds": round(took, 3)})


def _note_failure(
    refused: list[RefusedRecord], undelivered: list[KafkaError], error: KafkaError | None, record: Message
) -> None:
    if error is None:
        return
    undelivered.append(error)
    if error.code() in RECORD_ERRORS:
        refused.append(RefusedRecord(error, record))


def _number(value: object) -> int:
    """A property as a number; the client itself refuses one that is none, or was never meant for it."""
    text = str(value)
    return int(text) if text.isdecimal() else 0
