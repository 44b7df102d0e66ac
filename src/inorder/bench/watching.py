"""Watches a drain and live records, each with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AdminClient,
    OffsetSpec,
)

from inorder.bench.figures import Sample
from inorder.bench.load import LIVE_FIRST, Schedule, event_of, mark_of
from inorder.database.sql import quoted
from inorder.kafka.errors import CLIENT_LOG, error_of
from inorder.model.errors import TransientError

LOOK_SECONDS = 0.02
ROW_LOOK_SECONDS = 0.002
ANSWER_SECONDS = 10.0
UNSETTLED = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


def watch(
    count: Callable[[], int], is_done: Callable[[int], bool], check: Callable[[], None], cap: float
) -> list[Sample]:
    """Samples every 20 ms until it is done; `check` may raise, and so does the time limit."""
    looks: list[Sample] = []
    deadline = time.monotonic() + cap
    while True:
        look = Sample(count=count(), at=time.monotonic())
        looks.append(look)
        if is_done(look.count):
            return looks
        check()
        if look.at > deadline:
            raise TransientError(
                f"Only {look.count} records were carried within {cap:.0f} s.", hint="Fewer --rows take less time."
            )
        threading.Event().wait(LOOK_SECONDS)


class VisibleEnd:
    """How many offsets of a topic a `read_committed` reader could have read."""

    def __init__(self, kafka: Mapping[str, Any], topic: str, partitions: int) -> None:
        self._client = AdminClient(dict(kafka), logger=CLIENT_LOG)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client leaves it untyped
        self._asked = {TopicPartition(topic, number): latest for number in range(partitions)}

    def __call__(self) -> int:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._look()
            except KafkaException as exception:
                # A topic that was made a moment ago has partitions without a leader that all know.
                if error_of(exception).code() not in UNSETTLED or time.monotonic() > deadline:
                    raise
            threading.Event().wait(LOOK_SECONDS)

    def _look(self) -> int:
        answers = self._client.list_offsets(
            self._asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
        )
        return sum(answer.result(ANSWER_SECONDS).offset for answer in answers.values())


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A live record that arrived: its number, when it was due and when it was seen."""

    number: int
    due_ns: int
    seen_ns: int

    @property
    def milliseconds(self) -> float:
        return (self.seen_ns - self.due_ns) / 1e6


def see_records(
    kafka: Mapping[str, Any],
    topic: str,
    schedule: Schedule,
    cap: float,
    warmed: Callable[[], object] = lambda: None,
) -> list[SeenRecord]:
    """Reads live records as a `read_committed` consumer, until there are all or the time is over.

    `warmed` is called when the first record after the warm-up is seen. Other records are skipped.
    """
    consumer = _reader(kafka, topic)
    seen: list[SeenRecord] = []
    is_warm = False
    deadline = time.monotonic() + cap
    try:
        while len(seen) < schedule.total and time.monotonic() < deadline:
            one = _next_seen(consumer)
            if one is None:
                continue
            seen.append(one)
            if one.number >= schedule.warm and not is_warm:
                is_warm = True
                warmed()
    finally:
        consumer.close()
    return seen


def counted_of(seen: Sequence[SeenRecord], warm: int) -> list[SeenRecord]:
    """What was seen, less the warm-up."""
    return [one for one in seen if one.number >= warm]


def _next_seen(consumer: Consumer) -> SeenRecord | None:
    message = consumer.poll(0.1)
    now = time.monotonic_ns()
    if message is None:
        return None
    if error := message.error():
        raise KafkaException(error)
    key, due = event_of(message.value() or b"")
    return SeenRecord(key - LIVE_FIRST, due, now) if key >= LIVE_FIRST else None


def see_rows(connection: psycopg.Connection[Any], table: str, total: int, cap: float) -> list[SeenRecord]:
    """Looks live rows up every 2 ms, until there are `total` or the time is over."""
    statement = f"SELECT id, data FROM {quoted(table)} WHERE id >= %s AND id < %s"  # noqa: S608 - quoted
    seen: dict[int, SeenRecord] = {}
    low, deadline = 0, time.monotonic() + cap
    while len(seen) < total and time.monotonic() < deadline:
        found = connection.execute(statement, (LIVE_FIRST + low, LIVE_FIRST + total)).fetchall()
        now = time.monotonic_ns()
        for key, data in found:
            seen.setdefault(key - LIVE_FIRST, SeenRecord(key - LIVE_FIRST, mark_of(data), now))
        # Partitions commit apart, so the next look begins at the oldest row still awaited.
        while low in seen:
            low += 1
        threading.Event().wait(ROW_LOOK_SECONDS)
    return list(seen.values())


def _reader(kafka: Mapping[str, Any], topic: str) -> Consumer:
    consumer = Consumer(
        {
            **kafka,
            "group.id": "inorder.bench.live",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        },
        logger=CLIENT_LOG,
    )
    partitions = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    return consumer
