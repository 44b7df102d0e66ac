"""How the relay of an outbox table is set up, written down where every instance of it must look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Setup:
    """What all instances of one relay must agree on."""

    group: str
    strategy: str
    shards: int

    def __str__(self) -> str:
        return f"group {self.group!r}, strategy {self.strategy!r}, shards {self.shards}"


@dataclass(frozen=True, slots=True)
class Registration:
    """What is registered for an outbox table."""

    outbox: str
    group: str
    strategy: str
    shards: int
    epoch: int
    """Counts changes, from 1."""
    target: Setup | None = None
    """What it is being changed into; None while it is steady."""

    @property
    def setup(self) -> Setup:
        """What to compare with one's own."""
        return Setup(self.group, self.strategy, self.shards)


class Registry(Protocol):
    """The registration of one outbox table, in its database."""

    def register(self, wanted: Setup) -> Registration:
        """Registers the set-up if none is; returns what is registered, which may be another one."""

    def read(self) -> Registration | None:
        """What is registered, if anything is."""

    def begin_change(self, wanted: Setup) -> Registration:
        """Notes the target and counts the epoch up; the same again resumes, another one meanwhile is refused."""

    def finish_change(self) -> Registration:
        """Makes the target what is registered; nothing changes where no change was begun."""
