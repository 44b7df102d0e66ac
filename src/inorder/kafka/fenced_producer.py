"""Committing a transaction of Kafka until there is an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException, Producer

from inorder.kafka.errors import error_of


def commit(
    producer: Producer, seconds: float, answer_seconds: float, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Asks again while the client says that it may be; raises its last word when the time is over.

    `meanwhile` is called whenever an answer did not come.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            producer.commit_transaction(answer_seconds)
            return
        except KafkaException as exception:
            if not error_of(exception).retriable() or time.monotonic() > deadline:
                raise
            meanwhile()


# Split from inorder.relay.stores.kafka_log.

INIT_SECONDS = 30.0


COMMIT_SECONDS = 20.0


ABORT_SECONDS = 15.0


ANSWER_SECONDS = 2.0


MOST_FAILURES = 2
"""Failures of a producer in a row, with no record and no topic to blame, after which it is renewed."""


DEFAULTS: Mapping[str, object] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    # A paused owner's open transaction holds readers back until the broker ends it.
    "transaction.timeout.ms": 10_000,
}
"""What users may change."""


OURS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    # JVM clients and this one must agree where a key lives.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}
"""What the protocol depends on."""
