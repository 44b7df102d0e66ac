"""Leadership as a hint: who should try to own a shard."""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """A claim on a shard that spares two instances the trouble of fencing each other.

    It never decides anything: the broker's fence does. So a lease may be late, lost or held twice without harm.
    """

    def acquire(self) -> bool:
        """Wins the claim or extends it. Called about once a second by the owner and by those who wait.

        Whoever is told no stops its work before it asks again.
        """

    def holds(self) -> bool:
        """Whether the claim may still be ours, from memory: asked many times a second while records are under way.

        Whoever is told no sends nothing more, where no fence would stop it.
        """

    def release(self) -> None:
        """Gives the claim up so that the next instance need not wait for it to run out."""

    def arbitrates(self) -> bool:
        """Whether a fenced owner may wait for its turn; if not it must stop, or two would fence each other for ever."""
