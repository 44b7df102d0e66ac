"""Sleeping until a publisher wakes us, on PostgreSQL.

A sleeping relay holds the advisory lock of the table exclusively and listens on its channel. A publisher that finds the
lock held notifies the channel (`append` in `outbox/layouts/native/postgres.sql`); one that does not takes a share of it
until its commit, and while such shares are out nobody can fall asleep.

With several shards several loops sleep at once, on one lock. A notification reaches every listener, so it is enough
that one of them holds it; the others see that it is held and sleep too. When the holder wakes it gives the lock back
and **then** notifies, in one statement: the others look at the table once more, since a publisher in between told
nobody, and one of them takes the lock.

| what                                     | then                                                                      |
|---|---|
| the holder ends between try and look     | no lock is seen: we stay awake and try again                              |
| the holder ends after we looked          | its notification is on its way to us                                      |
| the holder dies                          | nobody notifies; the others look when the time they wait for is over      |
| our own notification comes back to us    | it is told by the process that sent it, and ignored                       |
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from inorder import sql

_STATEMENTS = sql.load("inorder.stores.postgres", "sleep.sql")


class Sleep:
    """One listener on one connection; a new connection is a new listener."""

    def __init__(self, connection: psycopg.Connection[Any], table: str, *, hands_over: bool) -> None:
        """`table` is quoted; with `hands_over` there may be other sleepers who rely on our lock."""
        self._connection = connection
        self._end = _STATEMENTS["hand_over" if hands_over else "end_sleep"]
        lock, channel = self._one("wake_up", {"table": table})
        self._key = {"lock": lock, "channel": channel}
        self._holds = False
        connection.execute(f"LISTEN {sql.quoted(channel)}")

    def begin(self) -> bool:
        """Whether publishers notify from now on, asked by us or by another sleeper."""
        self._holds = bool(self._one("begin_sleep", self._key)[0])
        return self._holds or bool(self._one("another_sleeps", self._key)[0])

    def wait(self, seconds: float) -> bool:
        """Until somebody else notifies; the driver keeps what came during an earlier statement."""
        own, until = self._connection.info.backend_pid, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # All that came together: one look at the table answers all of them.
            heard = {notification.pid for notification in self._connection.notifies(timeout=left, stop_after=1)}
            if heard - {own}:
                return True
        return False

    def end(self) -> None:
        """Gives the lock back, where we hold it."""
        if self._holds:
            self._holds = False
            self._connection.execute(self._end, self._key)

    def _one(self, name: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(_STATEMENTS[name], parameters).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return row
