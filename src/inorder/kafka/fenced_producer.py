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

**Refused records.** The client reports a record that the broker refuses for its content only to the delivery callback;
the commit then fails with an error that names no record. `refused` keeps these reports for the current transaction.

The methods raise the client's `KafkaException`, because only the caller knows what it was sending and which of its
records or topics explains the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.errors import CLIENT_LOG, RECORD_ERRORS, error_of, meaning

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


class Timeouts(NamedTuple):
    """How long each call waits, in seconds."""

    init: float = 30.0
    commit: float = 20.0
    """For all attempts of a commit together."""
    answer: float = 2.0
    """For one attempt."""
    abort: float = 15.0


TASK_TIMEOUTS = Timeouts(commit=60.0, answer=30.0, abort=5.0)
"""For work that an engine repeats as a whole when it fails, so that waiting longer for a commit is cheaper."""


class RefusedRecord(NamedTuple):
    """A record that the broker refused for its content."""

    error: KafkaError
    record: Message


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
        self._timeouts = timeouts
        # The callback must not refer to `self`: without a cycle, the client ends as soon as its producer is dropped.
        on_delivery = partial(_note_refusal, self.refused)
        ours = {**REQUIRED, "transactional.id": transactional_id, "on_delivery": on_delivery, **overrides}
        self.client = Producer({**defaults, **properties, **ours}, logger=CLIENT_LOG)
        try:
            self.client.init_transactions(timeouts.init)
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Taking over {transactional_id!r}") from exception

    def begin(self) -> None:
        self.refused.clear()
        self.client.begin_transaction()

    def add_offsets(self, offsets: Sequence[TopicPartition], group_metadata: object) -> None:
        """Commits the offsets of a consumer group if and only if the transaction is committed."""
        self.client.send_offsets_to_transaction(list(offsets), group_metadata, self._timeouts.commit)

    def commit(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Commits, and asks again while the error is retriable and time is left; then raises the last error.

        `meanwhile` is called after each attempt that had no answer.
        """
        deadline = time.monotonic() + self._timeouts.commit
        while True:
            try:
                self.client.commit_transaction(self._timeouts.answer)
                return
            except KafkaException as exception:
                if not error_of(exception).retriable() or time.monotonic() > deadline:
                    raise
                meanwhile()

    def abort(self) -> None:
        self.client.abort_transaction(self._timeouts.abort)

    def try_abort(self) -> bool:
        """Aborts so that readers go on at once; returns False where it failed and a fence or time-out must do it."""
        try:
            self.abort()
        except KafkaException:
            return False
        return True


def _note_refusal(refused: list[RefusedRecord], error: KafkaError | None, record: Message) -> None:
    if error is not None and error.code() in RECORD_ERRORS:
        refused.append(RefusedRecord(error, record))
