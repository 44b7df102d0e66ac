"""A connection that does nothing but wait for publishers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from inorder import sql
from inorder.stores.postgres.connect import Reconnecting
from inorder.stores.postgres.sleep import Sleep
from inorder.stores.postgres.sqlstate import our_errors


class Sleeping(ABC):
    """What all that sleep on a connection do alike."""

    def wait(self, seconds: float) -> bool:
        """Until somebody notifies, or the time is over."""
        with our_errors():
            return self._sleeping().wait(seconds)

    def end_sleep(self) -> None:
        """Asks publishers no more; with a broken connection the lock is gone already."""
        with our_errors():
            self._sleeping().end()

    @abstractmethod
    def _sleeping(self) -> Sleep:
        """The sleep on the connection that there is now."""


class PostgresSleeper(Sleeping):
    """A `Sleeper` beside a store; others of its kind may sleep on the same table."""

    def __init__(self, url: str, table: str) -> None:
        self._table = sql.quoted(table)
        self._connecting = Reconnecting(url, "inorder relay (sleep)")
        self._sleep: Sleep | None = None

    def begin_sleep(self) -> bool:
        """Asks publishers to notify."""
        with our_errors():
            return self._sleeping().begin()

    def close(self) -> None:
        """Closes the connection."""
        self._connecting.close()

    def _sleeping(self) -> Sleep:
        connection, is_new = self._connecting.get()
        if self._sleep is None or is_new:
            self._sleep = Sleep(connection, self._table, hands_over=True)
        return self._sleep
