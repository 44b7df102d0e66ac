"""`inorder` with a Kafka client that sometimes fails: `python faulty_relay.py RATE relay run --config …`.

The client is replaced by one that returns, for some calls, the errors of a real client when the network or the broker
fails, each at the given rate:

| where it fails                      | what happened to the records                      | what is said              |
|---|---|---|
| while records are handed over       | the first ones were taken, the others were not    | the queue is full         |
| while a transaction is committed    | none is visible                                   | must be aborted           |
|                                     | all are visible                                   | timed out, and not again  |
| while records are delivered         | they may arrive or not                            | timed out, in their order |

Everything else is the unchanged program. With the argument `tagged` after the rate, records carry the header
`instance` in addition to their own.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

import inorder.kafka.fenced_producer
import inorder.kafka.idempotent_producer
import inorder.relay.parts
from inorder.cli.main import main
from inorder.kafka.shard_log import Delivery
from inorder.model.message import OutboxRow
from inorder.relay.stores.kafka_log import KafkaShardLog

log = logging.getLogger("inorder.faulty")

INJECTED = "faulty.injected"

TAGGED = "tagged"
"""The argument after the rate with which records get the header `TAG`."""
TAG = "instance"


BATCH = 50
"""Records that are handed over one by one fail as often as that many in one call."""


class FaultyProducer(Producer):
    """A producer that fails at the given rate."""

    rate = 0.0

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **options: Any) -> int:
        """Accepts all, or only the first of them; and may report some as failed that it accepted."""
        taken = random.randrange(len(messages)) if self._fails("produce") else len(messages)
        queued = super().produce_batch(topic, messages[:taken], *args, **options)
        for message in messages[taken:]:
            message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        reports = [message["callback"] for message in messages[:taken] if "callback" in message]
        if reports and self._fails("deliver"):
            _report(reports[random.randrange(len(reports)) :])
        return queued

    def produce(self, topic: str, *args: Any, **options: Any) -> None:
        """Accepts a record, or none from there on: records with headers are handed over one by one."""
        if random.randrange(BATCH) == 0 and self._fails("produce"):
            raise BufferError("injected")
        super().produce(topic, *args, **options)

    def commit_transaction(self, *timeout: float) -> None:
        """Commits, or fails before or after the commit."""
        if self._fails("deliver"):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "injected", txn_requires_abort=True))
        super().commit_transaction(*timeout)
        if self._fails("answer"):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "injected"))

    def _fails(self, what: str) -> bool:
        if random.random() >= self.rate:
            return False
        log.warning(INJECTED, extra={"what": what})
        return True


def _report(callbacks: list[Callable[[KafkaError, None], None]]) -> None:
    """Fails all from one record on, as a producer without gaps does."""
    for callback in callbacks:
        callback(KafkaError(KafkaError._MSG_TIMED_OUT, "injected"), None)


class TaggedShardLog(KafkaShardLog):
    """A log that tags records with the instance and the term that sent them.

    For tests only: in production this would change the users' records.
    """

    _terms = 0

    def take_over(self) -> bytes | None:
        """Counts the term."""
        self._terms += 1
        return super().take_over()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Publishes each record with the header."""
        tag = (TAG, f"{os.getpid()}/{self._terms}".encode())
        return super().publish([row._replace(headers=(*row.headers, tag)) for row in rows], marker)


if __name__ == "__main__":
    FaultyProducer.rate = float(sys.argv.pop(1))
    for module in (inorder.kafka.fenced_producer, inorder.kafka.idempotent_producer):
        module.Producer = FaultyProducer  # type: ignore[attr-defined]  # replaced only here
    if sys.argv[1] == TAGGED:
        sys.argv.pop(1)
        inorder.relay.parts.KafkaShardLog = TaggedShardLog  # type: ignore[attr-defined]  # and this one
    sys.exit(main())
