"""Which partition a key belongs to, and which shard of the outbox a row belongs to.

All producers of a topic must choose the same partition for a key, or its order is lost. So `murmur2` is bit for bit the
hash of Kafka's Java producer and of librdkafka's `murmur2_random`. `id-modulo` sends integer ids to `id % partitions`,
which people can compute in their heads, and every other key by murmur2.

A shard is chosen by topic and key. Databases compute the same in SQL (`{mine}` in the statements of the outbox), so the
rule is one that all of them have and that no upgrade changes: rows that changed their shard unnoticed could be
published by two owners.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import md5
from typing import TypeAlias

# Only the canonical form of an integer counts, so that the bytes of a key decide. int() accepts 640 digits under any
# setting of PYTHONINTMAXSTRDIGITS; a longer key is not an id and is hashed.
_CANONICAL_INTEGER = re.compile(rb"(?:0|-?[1-9][0-9]{0,639})\Z")

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


class Partitioner(StrEnum):
    """How keys are spread over partitions."""

    MURMUR2 = "murmur2"
    ID_MODULO = "id-modulo"


def partition_of(key: bytes | None, partitions: int, partitioner: Partitioner) -> int | None:
    """The partition of a key, or None for no key: then the client may choose any.

    >>> partition_of(b"42", 10, Partitioner.ID_MODULO)
    2
    """
    if key is None:
        return None
    if partitioner is Partitioner.ID_MODULO and _CANONICAL_INTEGER.match(key):
        return int(key) % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of the bytes, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of the outbox."""

    index: int = 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether there is only one part."""
        return self.count == 1


def shard_of(topic: str, key: bytes | None, id: int, count: int) -> int:
    """The shard of a row; one without a key has no order to keep and is assigned by its id.

    >>> shard_of("orders", b"42", 1, 4) == shard_of("orders", b"42", 2, 4)
    True
    """
    ordered_by = str(id).encode() if key is None else key
    digest = md5(topic.encode() + b"\0" + ordered_by, usedforsecurity=False)
    return int(digest.hexdigest()[:7], 16) % count


Place: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a partition holds: from `first` up to, not including, `end`; open transactions are beyond it."""

    first: int
    end: int
