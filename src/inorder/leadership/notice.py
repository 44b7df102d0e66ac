"""Notice: how a shard goes from one instance to another without both working on it."""

from __future__ import annotations

from threading import Event


class Notice:
    """Whether a shard's loop still works, judged by what it was told.

    A loop that is told no stops before it asks again. So the first no gives notice, and the next question shows that
    the loop has stopped: then the shard may go.
    """

    def __init__(self) -> None:
        self._idle = Event()
        self._idle.set()
        self._is_given = False

    @property
    def is_idle(self) -> bool:
        """Whether nobody works on the shard here."""
        return self._idle.is_set()

    def tell(self, may_work: bool) -> None:
        """Notes an answer that the loop is about to get."""
        if may_work:
            self._is_given = False
            self._idle.clear()
        elif self._is_given:
            self.stopped()
        else:
            self._is_given = not self.is_idle

    def stopped(self) -> None:
        """Notes that the loop has ended or stopped."""
        self._is_given = False
        self._idle.set()

    def wait(self, seconds: float) -> bool:
        """Waits until nobody works, and says whether that is so."""
        return self._idle.wait(max(seconds, 0))
