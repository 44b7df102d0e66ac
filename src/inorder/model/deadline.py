"""How long somebody is willing to wait, handed down to whoever waits."""

from __future__ import annotations

from collections.abc import Callable

from inorder.model.errors import DeadlineError


class Deadline:
    """Some seconds from now by a clock that never goes back; `what` says in an error what was waited for."""

    def __init__(self, clock: Callable[[], float], seconds: float, what: str) -> None:
        self._clock = clock
        self._seconds = seconds
        self._what = what
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Seconds that are left, more than none; once they are over it raises `DeadlineError`."""
        left = self._end - self._clock()
        if left > 0:
            return left
        raise self.error()

    def error(self) -> DeadlineError:
        """What to raise when the time is over."""
        return DeadlineError(
            f"{self._what}: no answer within {self._seconds:g} s.",
            hint="See `inorder doctor` for servers that do not answer, or give it more time.",
        )

    def renew(self) -> None:
        """Counts from now again, after something was heard."""
        self._end = self._clock() + self._seconds
