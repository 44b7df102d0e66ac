"""Which part of the outbox a row belongs to, by its topic and key.

Databases compute the same in SQL (`{mine}` in `stores/*/outbox.sql`), so the rule is one that all of them know, and one
that no upgrade changes: rows that changed their shard unnoticed could be published by two owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts."""

    index: int = 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether there is only one part."""
        return self.count == 1


def shard_of(topic: str, key: bytes | None, id: int, count: int) -> int:
    """The part a row belongs to; one without a key has no order to keep and goes by its id.

    >>> shard_of("orders", b"42", 1, 4) == shard_of("orders", b"42", 2, 4)
    True
    """
    ordered_by = str(id).encode() if key is None else key
    digest = md5(topic.encode() + b"\0" + ordered_by, usedforsecurity=False)
    return int(digest.hexdigest()[:7], 16) % count
