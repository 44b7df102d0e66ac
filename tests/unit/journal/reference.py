"""The rules of a journal once more, in a few lines and without the code under test.

A life is named by the place of its first append; conditions are compared by that name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from inorder.journal.action import NOT_BEGUN, Action, Append, Condition, Delete, Purge
from inorder.journal.life import life_id
from inorder.model.journal import Key


@dataclass
class Reference:
    """A journal after the records that it was given, in the order of the log."""

    key: Key
    partition: int = 0
    end: int = 0
    bound: int = 0
    """Set by deletes while there is no event."""
    began: int | None = None
    events: dict[int, int] = field(default_factory=dict)
    """The offsets of the visible events by their numbers."""

    @property
    def pointer(self) -> int | None:
        return self.end or self.bound or None

    @property
    def name(self) -> UUID:
        """The name of the life."""
        return NOT_BEGUN if self.began is None else life_id(self.key, self.partition, self.began)

    def frees(self, purge: Purge) -> bool:
        """Whether a purge ends the quarantine of a journal that was parked like this."""
        return self.began is None or self._holds(purge.condition)

    def take(self, offset: int, action: Action, numbers: list[int]) -> list[int]:
        """Applies an action; returns the numbers of its events that count."""
        if not self._holds(getattr(action, "condition", None)):
            return []
        if isinstance(action, Purge):
            self.end, self.bound, self.began, self.events = 0, 0, None, {}
        elif isinstance(action, Delete) and self.began is None:
            self.bound = max(self.bound, action.to)
        elif isinstance(action, Delete):
            self.events = {number: place for number, place in self.events.items() if number > action.to}
        elif isinstance(action, Append):
            counted = [number for number in numbers if number > self.end]
            if action.id is not None and len(counted) < len(numbers):
                return []
            if counted:
                self.began = offset if self.began is None else self.began
                self.events |= dict.fromkeys(counted, offset)
                self.end = counted[-1]
            return counted
        return []

    def _holds(self, condition: Condition | None) -> bool:
        if condition is None:
            return True
        return condition.life in (None, self.name) and condition.seq_nr in (None, self.pointer or 0)
