"""How many instances are there: what a fair share of the shards is reckoned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Standing:
    """One instance among those alive."""

    members: int = 1
    """How many are alive, this one with them."""
    rank: int = 0
    """How many of them come before this one. Each has a rank of its own once all know each other."""


class Membership(Protocol):
    """One instance's place in a relay group. A hint like the lease: it may be late or wrong without harm."""

    def beat(self) -> Standing:
        """Keeps this instance known for a while and tells who else is; called about once a second, may block."""

    def leave(self) -> None:
        """Is forgotten at once. May be called twice; the next `beat` comes back."""
