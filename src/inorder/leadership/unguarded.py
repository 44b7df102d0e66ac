"""Leadership `none`: nobody is asked."""

from __future__ import annotations


class NoLease:
    """Leadership `none`: this instance is told that it is the only one."""

    def acquire(self) -> bool:
        """Always."""
        return True

    def holds(self) -> bool:
        """Always."""
        return True

    def release(self) -> None:
        """Nothing to free."""

    def arbitrates(self) -> bool:
        """Nobody else should be there, so being fenced is an error."""
        return False
