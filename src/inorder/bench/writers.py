"""Writers that publish as fast as the database lets them, each in a process of its own.

One side writes through `Outbox`. The other runs the same INSERT with the part that wakes the relay cut out, through the
same driver and with the same encoding. Nobody would then wake the relay, and its rest would be the writers' gain; so on
both sides one more writer publishes through `Outbox` at a slow pace, keeps the relay at work, and is not counted.
"""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from inorder.bench.load import value_of
from inorder.model.errors import PermanentError
from inorder.model.message import Limits, Message, encode
from inorder.outbox import Outbox
from inorder.outbox.append import append_to
from inorder.stores.postgres.connect import connect

HEAD_START_SECONDS = 1.5
RING_SECONDS = 0.005
"""The pause of the one that keeps the relay awake."""
_WAKE_UP = re.compile(r"\nWHERE .*?\n(?=ORDER BY place)", re.DOTALL)

Publish = Callable[[psycopg.Connection[Any], Message], None]


def publish_flat_out(
    url: str, table: str, topic: str, writers: int, seconds: float, first_key: int, wakes: bool
) -> dict[str, Any]:
    """Lets so many writers commit one message a transaction; returns how many each committed, by its key.

    The last of the keys is that of the one that keeps the relay awake.
    """
    fork = multiprocessing.get_context("fork")  # nothing here has started a thread
    answers = fork.SimpleQueue()
    start = time.monotonic() + HEAD_START_SECONDS
    keys = range(first_key, first_key + writers + 1)
    kinds = [*((wakes, 0.0) for _ in range(writers)), (True, RING_SECONDS)]
    processes = [
        fork.Process(target=_write, args=(url, table, topic, key, start, seconds, answers, *kind))
        for key, kind in zip(keys, kinds, strict=True)
    ]
    for process in processes:
        process.start()
    committed = dict(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return {"committed": [[key, committed[key]] for key in keys]}


def without_wake_up(statement: str) -> str:
    """The append statement less the condition that wakes a sleeping relay."""
    plain, found = _WAKE_UP.subn("\n", statement)
    if found != 1 or "pg_notify" in plain:
        raise PermanentError("The wake-up could not be cut out of the append statement; it has another shape now.")
    return plain


def _write(
    url: str, table: str, topic: str, key: int, start: float, seconds: float, answers: Any, wakes: bool, pause: float
) -> None:
    publish = Outbox(table).publish if wakes else _plain(table)
    committed = 0
    with connect(url, "inorder bench (writer)") as connection:
        time.sleep(max(0.0, start - time.monotonic()))
        end = start + seconds
        while time.monotonic() < end:
            publish(connection, Message(topic, key=key, value=value_of(key, committed + 1)))
            connection.commit()
            committed += 1
            if pause:
                time.sleep(pause)
    answers.put((key, committed))


def _plain(table: str) -> Publish:
    append = append_to(table, "postgresql")
    statement, limits = without_wake_up(append.pyformat).encode(), Limits()

    def publish(connection: psycopg.Connection[Any], message: Message) -> None:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement, append.parameters((encode(message, limits),)))

    return publish
