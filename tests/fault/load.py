"""Writers that continue through all faults and know afterwards what was committed.

Each writer has its own keys. A transaction adds the next event of each of them to the outbox and increments a counter
in a table beside it. So the counter says what was committed, even if the answer to a COMMIT was lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import psycopg

from inorder.database.postgres import connect
from inorder.model.errors import TransientError
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.testing.checker import Event

WRITERS = 3
KEYS = 8
PAUSE_SECONDS = 0.03
LATE_SECONDS = 0.4
AGAIN_SECONDS = 0.1

_INSTALL = """
CREATE TABLE load_rounds (writer integer PRIMARY KEY, rounds bigint NOT NULL);
INSERT INTO load_rounds SELECT writer, 0 FROM generate_series(0, %d) AS writer;
"""
_COUNT = "UPDATE load_rounds SET rounds = rounds + 1 WHERE writer = %s RETURNING rounds"
_GOHARVEST = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
VALUES (now(), %s, %s, %s, %s, %s)
"""

Connection = psycopg.Connection[Any]


class Load:
    """Several writers that run for the duration of the block; it may be entered again."""

    def __init__(self, url: str, topics: Sequence[str], layout: str, seed: int) -> None:
        self._url = url
        self._topics = topics
        self._add = _WAYS[layout]
        self._chance = [random.Random(seed + writer) for writer in range(WRITERS)]
        self._stop = threading.Event()
        self._writing: list[Future[None]] = []
        with connect(url, "load") as connection:
            connection.execute(_INSTALL % (WRITERS - 1))

    def __enter__(self) -> Self:
        self._stop.clear()
        pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="load")
        self._writing = [pool.submit(self._write, writer) for writer in range(WRITERS)]
        pool.shutdown(wait=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for each in self._writing:
            each.result()

    def committed(self) -> list[Event]:
        """Every event whose transaction was committed."""
        with connect(self._url, "load") as connection:
            rounds = connection.execute("SELECT writer, rounds FROM load_rounds").fetchall()
        return [
            (_key(writer, number), place)
            for writer, last in rounds
            for number in range(KEYS)
            for place in range(1, last + 1)
        ]

    def _write(self, writer: int) -> None:
        while not self._stop.is_set():
            try:
                with connect(self._url, "load", autocommit=True) as connection:
                    self._write_rounds(connection, writer)
            except (psycopg.Error, TransientError):
                self._stop.wait(AGAIN_SECONDS)

    def _write_rounds(self, connection: Connection, writer: int) -> None:
        chance = self._chance[writer]
        while not self._stop.wait(chance.uniform(0, 2 * PAUSE_SECONDS)):
            with connection.transaction(force_rollback=chance.random() < 0.05):
                row = connection.execute(_COUNT, [writer]).fetchone()
                assert row is not None
                self._add(connection, [self._message(writer, number, row[0]) for number in range(KEYS)])
                if chance.random() < 0.02:  # commits long after others with later ids
                    self._stop.wait(LATE_SECONDS)

    def _message(self, writer: int, number: int, place: int) -> Message:
        headers: Mapping[str, str] = {"place": str(place)} if place % 7 == 0 else {}
        topic = self._topics[number % len(self._topics)]
        return Message(topic, key=_key(writer, number).decode(), value=str(place), headers=headers)


def _key(writer: int, number: int) -> bytes:
    return f"{writer}.{number}".encode()


def _as_native(connection: Connection, messages: Sequence[Message]) -> None:
    Outbox().publish_list(connection, messages)


def _as_trendyol(connection: Connection, messages: Sequence[Message]) -> None:
    Outbox("outbox_events", layout="trendyol").publish_list(connection, messages)


def _as_deimos(connection: Connection, messages: Sequence[Message]) -> None:
    without_headers = [replace(message, headers=None) for message in messages]
    Outbox("kafka_messages", layout="deimos").publish_list(connection, without_headers)


def _as_goharvest(connection: Connection, messages: Sequence[Message]) -> None:
    """Writes as a table's own writers do, without our library."""
    rows = [
        (each.topic, each.key, each.value, list(headers), list(headers.values()))
        for each in messages
        for headers in [dict(each.headers or {})]
    ]
    with connection.cursor() as cursor:
        cursor.executemany(_GOHARVEST, rows)


_WAYS: Mapping[str, Callable[[Connection, Sequence[Message]], None]] = {
    "native": _as_native,
    "goharvest": _as_goharvest,
    "trendyol": _as_trendyol,
    "deimos": _as_deimos,
}
