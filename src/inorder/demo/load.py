"""What the demo's writers will do, decided beforehand from a seed: a pure plan that can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

KEYS = 500
LATE_KEYS = 5
"""The last keys belong to transactions that stay open while later ids are published."""

MOST_UPDATES = 8


class Kind(Enum):
    """What a message carries."""

    FULL = auto()
    ONLY_ENABLED = auto()
    ONLY_DATA = auto()
    INVALID = auto()
    """A wrong type: the pipeline must set it aside and stop nothing."""


_KINDS = [Kind.FULL] * 12 + [Kind.ONLY_ENABLED] * 3 + [Kind.ONLY_DATA] * 4 + [Kind.INVALID]


@dataclass(frozen=True, slots=True)
class Update:
    """One message to be written."""

    key: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction to be made."""

    updates: tuple[Update, ...]
    commits: bool = True
    is_late: bool = False


def plan_load(events: int, seed: int) -> list[Plan]:
    """Transactions with `events` updates in all; about a tenth of them roll back, a few commit late."""
    chance = random.Random(seed)  # noqa: S311 - a load, not a secret
    return list(_plans(events, chance))


def _plans(events: int, chance: random.Random) -> Iterator[Plan]:
    left = events
    for key in range(KEYS - LATE_KEYS + 1, KEYS + 1):
        if left > MOST_UPDATES:
            left -= 1
            yield Plan((Update(key, Kind.FULL),), is_late=True)
    while left:
        keys = chance.sample(range(1, KEYS - LATE_KEYS + 1), min(left, chance.randint(1, MOST_UPDATES)))
        left -= len(keys)
        # Locks are taken in the order of keys, so that writers wait for each other and never in a circle.
        updates = tuple(Update(key, chance.choice(_KINDS)) for key in sorted(keys))
        yield Plan(updates, commits=chance.random() > 0.1)


def body(update: Update, place: int) -> dict[str, object]:
    """The message's value; `place` counts the events of its key and tells the checker which one this is."""
    enabled, data = place % 3 != 0, f"event {place} of key {update.key}"
    fields: dict[Kind, dict[str, object]] = {
        Kind.FULL: {"enabled": enabled, "data": data},
        Kind.ONLY_ENABLED: {"enabled": enabled},
        Kind.ONLY_DATA: {"data": data},
        Kind.INVALID: {"enabled": "perhaps", "data": data},
    }
    return {"id": update.key, "place": place, **fields[update.kind]}
