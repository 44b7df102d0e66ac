"""Waiting on a database through which publishers cannot wake us: the relay looks for itself, ever less often."""

from __future__ import annotations

import time


class NoWakeUp:
    """The three verbs of a `Sleeper` that nobody can wake."""

    def begin_sleep(self) -> bool:
        """Nobody can be asked."""
        return False

    def wait(self, seconds: float) -> bool:
        """Waits all of it."""
        time.sleep(seconds)
        return False

    def end_sleep(self) -> None:
        """Nobody was asked."""
