"""Committing a transaction of Kafka until there is an answer."""

from __future__ import annotations

import time
from collections.abc import Callable

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
