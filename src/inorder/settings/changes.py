"""What changed between two readings of the settings, and which of it a running relay can go on with.

| keys                                                                 | a running relay                               |
|---|---|
| [kafka], [topics], [relay] and [relay.polling] but for those below   | goes on with them, after the batch in hand    |
| [log]                                                                | uses them at once                             |
| those that name or share out the work: group, strategy, layout,      | keeps the old ones until it is started again  |
| tables, delivery, leadership, shards, lease, database, redis, health |                                               |
| all others                                                           | has nothing to do with them                   |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from inorder.settings.contradictions import contradictions
from inorder.settings.root import Settings, leaves
from inorder.settings.sources import Path, spelt

M = TypeVar("M", bound=BaseModel)

_FIXED_SECTIONS = ("database", "redis", "health")
_FIXED_OF_RELAY = (
    "group",
    "strategy",
    "layout",
    "table",
    "delivery",
    "leadership",
    "shards",
    "lease",
    "retention_days",
    "stop_seconds",
)
_FIXED_OF_POLLING = ("missing_table", "exceeded_table", "offset_table")
_FIXED = (
    *((section,) for section in _FIXED_SECTIONS),
    *(("relay", name) for name in _FIXED_OF_RELAY),
    *(("relay", "polling", name) for name in _FIXED_OF_POLLING),
)
_GONE_ON_WITH = (("kafka",), ("topics",), ("relay",))


@dataclass(frozen=True, slots=True)
class Changes:
    """The keys that changed, as one writes them."""

    for_the_relay: tuple[str, ...]
    """A running relay goes on with these."""
    for_a_restart: tuple[str, ...]
    """These count only after it is started again."""

    @property
    def of_kafka(self) -> bool:
        """Whether the way to the broker is another one."""
        return any(key.startswith("kafka.") for key in self.for_the_relay)


def changes(old: Settings, new: Settings) -> Changes:
    """What is different in the new ones."""
    keys = sorted(_changed(old, new))
    fixed = [key for key in keys if _begins(key, _FIXED)]
    taken = [key for key in keys if key not in fixed and _begins(key, _GONE_ON_WITH)]
    return Changes(tuple(spelt(key) for key in taken), tuple(spelt(key) for key in fixed))


def adopted(old: Settings, new: Settings) -> Settings:
    """The new settings with the old values of all keys that need a restart."""
    polling = _with(new.relay.polling, old.relay.polling, _FIXED_OF_POLLING)
    relay = _with(new.relay, old.relay, _FIXED_OF_RELAY).model_copy(update={"polling": polling})
    return _with(new, old, _FIXED_SECTIONS).model_copy(update={"relay": relay})


def conflicts(settings: Settings) -> list[str]:
    """What contradicts itself in settings that were put together from two readings."""
    return list(contradictions(settings))


def _with(new: M, old: M, names: tuple[str, ...]) -> M:
    return new.model_copy(update={name: getattr(old, name) for name in names})


def _changed(old: Settings, new: Settings) -> Iterator[Path]:
    before, after = dict(leaves(old)), dict(leaves(new))
    for key in before.keys() | after.keys():
        if key not in before or key not in after or before[key] != after[key]:
            yield key


def _begins(key: Path, prefixes: tuple[Path, ...]) -> bool:
    return any(key[: len(prefix)] == prefix for prefix in prefixes)
