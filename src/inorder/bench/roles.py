"""What workers do: send a load, write, send or append on a schedule, or be the peer of the pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer

from inorder.bench.load import LIVE_FIRST, Load, Schedule, chunks, payload_of, value_of, when_due, with_schema
from inorder.bench.pipeline import raw_copy
from inorder.bench.tables import LAYOUTS
from inorder.bench.wake_up import publish_flat_out
from inorder.database.postgres import connect
from inorder.journal.client import Journal
from inorder.journal.service import Journals
from inorder.kafka.errors import CLIENT_LOG
from inorder.kafka.fenced_producer import REQUIRED
from inorder.model.errors import TransientError
from inorder.model.journal import Event, Key, PartitionOffset
from inorder.settings import Settings

WRITERS = 4
CHUNK = 10_000
FLUSH_SECONDS = 60.0
HEAD_START_NS = 200_000_000


def send_all(kafka: Mapping[str, Any], topic: str, rows: int, keys: int, headers: int = 0) -> dict[str, Any]:
    """The peer `librdkafka`: an idempotent producer with acks=all that has every record in memory."""
    # The relay's own client settings, less its transaction: what remains between the two is the outbox's price.
    producer = _producer(kafka, rows, {"linger.ms": 5, "compression.type": "lz4"})
    load = Load(rows, keys, headers)
    records = [{"key": key, "value": value} for key, value in load.records()]
    began, cpu = time.monotonic(), time.process_time()
    for chunk in chunks(records, CHUNK):
        _send_chunk(producer, topic, chunk, load.header_pairs)
    _flush(producer)
    return {"began": began, "ended": time.monotonic(), "cpu_seconds": time.process_time() - cpu}


def _send_chunk(
    producer: Producer, topic: str, chunk: list[dict[str, Any]], headers: Sequence[tuple[str, bytes]]
) -> None:
    if headers:  # which the batch call does not carry
        for record in chunk:
            producer.produce(topic, headers=list(headers), **record)
    elif producer.produce_batch(topic, chunk) != len(chunk):
        raise TransientError("The producer's queue is full.")


def send_live(
    kafka: Mapping[str, Any], topic: str, rate: int, seconds: float, warm_seconds: float, has_schema: bool = False
) -> dict[str, Any]:
    """Sends a record whenever one is due, and never waits for it."""
    schedule = Schedule(rate, seconds, warm_seconds)
    producer = _producer(kafka, schedule.total, {"linger.ms": 0})
    producer.list_topics(topic, timeout=10)
    start, cpu = time.monotonic_ns() + HEAD_START_NS, 0.0
    for number, due in when_due(schedule, start, range(schedule.total)):
        if number == schedule.warm:
            cpu = time.process_time()
        key = LIVE_FIRST + number
        value = value_of(key, due)
        producer.produce(topic, key=str(key), value=with_schema(value) if has_schema else value)
        producer.poll(0)
    _flush(producer)
    return {"cpu_seconds": time.process_time() - cpu}


def send_backlog(
    kafka: Mapping[str, Any],
    topic: str,
    load: Mapping[str, Any],
    first: int,
    has_schema: bool,
    at_once: bool,
    ends: Sequence[int] = (),
) -> dict[str, Any]:
    """Sends the records of a load from a number on; `at_once` in a transaction, so that all become visible together.

    `ends` are ids of rows that are sent last, one to each partition.
    """
    own = {"transactional.id": f"bench-{topic}", "transaction.timeout.ms": 300_000} if at_once else {}
    producer = _producer(kafka, load["rows"] + len(ends), {"linger.ms": 5, "compression.type": "lz4", **own})
    if at_once:
        producer.init_transactions(FLUSH_SECONDS)
        producer.begin_transaction()
    form = with_schema if has_schema else bytes
    records = ({"key": key, "value": form(value)} for key, value in Load(**load).records(first))
    for chunk in chunks(records, CHUNK):
        _send_chunk(producer, topic, chunk, ())
    for partition, key in enumerate(ends):
        producer.produce(topic, key=str(key), value=form(value_of(key, 0)), partition=partition)
    _flush(producer)
    visible = time.monotonic()
    if at_once:
        producer.commit_transaction(FLUSH_SECONDS)
    return {"visible": visible}


def publish_live(
    url: str, layout: str, table: str, topic: str, rate: int, seconds: float, warm_seconds: float
) -> dict[str, Any]:
    """Commits a transaction with one outbox row whenever one is due, from several connections that take turns."""
    schedule = Schedule(rate, seconds, warm_seconds)
    start = time.monotonic_ns() + 2 * HEAD_START_NS

    def publish(connection: psycopg.Connection[Any], key: int, value: bytes) -> None:
        LAYOUTS[layout].publish(connection, table, topic, key, value)

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="bench-writer") as pool:
        shares = [
            pool.submit(_publish_share, url, publish, schedule, start, schedule.share(writer, WRITERS))
            for writer in range(WRITERS)
        ]
        committed = dict(pair for share in shares for pair in share.result())
    return {"committed_ns": [committed[number] for number in range(schedule.total)]}


def _publish_share(
    url: str, publish: Callable[..., None], schedule: Schedule, start: int, share: range
) -> list[tuple[int, int]]:
    committed = []
    with connect(url, "inorder bench (writer)") as connection:
        for number, due in when_due(schedule, start, share):
            key = LIVE_FIRST + number
            publish(connection, key, value_of(key, due))
            connection.commit()
            committed.append((number, time.monotonic_ns()))
    return committed


def append_backlog(config: str, topic: str, rounds: int, batch: int, journals: int) -> dict[str, Any]:
    """Appends to every journal in turn, so many rounds of so many events; returns when all are acknowledged."""
    with closing(Journals(Settings.load(Path(config)))) as opened:
        made = _journals(opened, topic, "id", journals)
        sent: list[Future[PartitionOffset]] = []
        for turn in range(rounds):
            numbers = range(1 + turn * batch, 1 + (turn + 1) * batch)
            sent += [each.append_later([Event(number, payload_of(number)) for number in numbers]) for each in made]
        wait(sent)
        return {"records": len({place.result() for place in sent})}


def append_live(
    config: str, topic: str, rate: int, seconds: float, warm_seconds: float, journals: int
) -> dict[str, Any]:
    """Appends an event whenever one is due, and never waits for it; returns the place of each and when it was due."""
    schedule = Schedule(rate, seconds, warm_seconds)
    with closing(Journals(Settings.load(Path(config)))) as opened:
        made = _journals(opened, topic, "live", journals)
        sent: list[tuple[int, Future[PartitionOffset]]] = []
        for number, due in when_due(schedule, time.monotonic_ns() + HEAD_START_NS, range(schedule.total)):
            event = 1 + number // journals
            sent.append((due, made[number % journals].append_later([Event(event, payload_of(event))])))
        places = [(due, place.result()) for due, place in sent]
    return {"appended": [[place.partition, place.offset, due] for due, place in places]}


def _journals(opened: Journals, topic: str, name: str, count: int) -> Sequence[Journal]:
    return [opened.journal(Key(f"{name}-{number}", topic)) for number in range(count)]


def _producer(kafka: Mapping[str, Any], records: int, more: Mapping[str, Any]) -> Producer:
    # All records fit in the queue: a full one would make a sender wait, or change the order.
    queue = {"queue.buffering.max.messages": max(records, 1_000), "queue.buffering.max.kbytes": 2_000_000}
    return Producer({**kafka, **REQUIRED, **queue, **more}, logger=CLIENT_LOG)


def _flush(producer: Producer) -> None:
    if left := producer.flush(FLUSH_SECONDS):
        raise TransientError(f"{left} records were not acknowledged within {FLUSH_SECONDS:.0f} s.")


ROLES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "send-all": send_all,
    "send-live": send_live,
    "send-backlog": send_backlog,
    "publish-live": publish_live,
    "publish-flat-out": publish_flat_out,
    "raw-copy": raw_copy,
    "append-backlog": append_backlog,
    "append-live": append_live,
}
