"""What a consumer costs: why they are kept for the next reader, and why windows are short."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from inorder.kafka.committed import committed_consumer
from inorder.kafka.journal_windows import GROUP, PROPERTIES
from inorder.model.errors import TransientError

WAIT_SECONDS = 10.0
POLLED = 20_000


class ConsumerCost(NamedTuple):
    """Medians: milliseconds to the first record of a new consumer, and of one that goes elsewhere; then of a record."""

    init_ms: float
    seek_ms: float
    poll_us: float


def consumer_cost(properties: Mapping[str, Any], topic: str, trials: int) -> ConsumerCost:
    """Measured on the first partition of a topic that has records."""
    inits, seeks = [], []
    for _ in range(trials):
        began = time.perf_counter()
        with closing(committed_consumer(properties, GROUP, PROPERTIES)) as consumer:
            _first_record(consumer, topic, 0)
            inits.append(time.perf_counter() - began)
            began = time.perf_counter()
            _first_record(consumer, topic, 1)
            seeks.append(time.perf_counter() - began)
    with closing(committed_consumer(properties, GROUP, PROPERTIES)) as consumer:
        _first_record(consumer, topic, 0)
        began = time.perf_counter()
        polled = len(consumer.consume(POLLED, 1.0)) or 1
        poll = (time.perf_counter() - began) / polled
    return ConsumerCost(1e3 * median(inits), 1e3 * median(seeks), 1e6 * poll)


def _first_record(consumer: Consumer, topic: str, offset: int) -> Message:
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(WAIT_SECONDS)
    if message is None or message.error():
        raise TransientError(f"{topic}[0] offset {offset} was not read within {WAIT_SECONDS:g} s.")
    return message
