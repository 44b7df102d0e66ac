"""A time limit that a caller passes down to every step of an operation."""

from __future__ import annotations

from collections.abc import Callable

from inorder.model.errors import DeadlineError


class Deadline:
    """Ends `seconds` from now, by a monotonic clock; `what` names the operation in the error."""

    def __init__(self, clock: Callable[[], float], seconds: float, what: str) -> None:
        self._clock = clock
        self._seconds = seconds
        self._what = what
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Seconds left, always more than 0; raises `DeadlineError` when none are."""
        left = self._end - self._clock()
        if left > 0:
            return left
        raise self.error()

    def error(self) -> DeadlineError:
        return DeadlineError(
            f"{self._what}: timed out after {self._seconds:g} s.",
            hint="`inorder doctor` shows which server does not answer; or raise the timeout.",
        )

    def renew(self) -> None:
        """Restarts from now, after a sign of progress."""
        self._end = self._clock() + self._seconds
