"""The last committed record of a partition: what stands behind it are aborted records and transaction markers."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from inorder.model.errors import UnreachableError

TIMEOUT_SECONDS = 20.0
FIRST_LOOK_BACK = 64


def read_last_record(consumer: Consumer, topic: str, partition: int) -> Message | None:
    """The newest committed record; None if there is none.

    The consumer must read committed records and tell the end of a partition (`kafka/committed.py`). No transaction may
    be open on the partition. Looks at the end first and farther back only if it finds no record there.
    """
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
    look_back = FIRST_LOOK_BACK
    while True:
        start = max(low, high - look_back)
        last = _last_from(consumer, TopicPartition(topic, partition, start))
        if last is not None or start == low:
            return last
        look_back *= 16


def _last_from(consumer: Consumer, start: TopicPartition) -> Message | None:
    consumer.assign([start])
    last: Message | None = None
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = message
        elif error.code() == KafkaError._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise UnreachableError(
        f"The end of {start.topic}/{start.partition} was not reached within {TIMEOUT_SECONDS:.0f} s.",
        hint="Is the broker that leads this partition up?",
    )
