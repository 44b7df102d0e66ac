"""Slices and messages made by hand, for tests."""

from __future__ import annotations

import orjson

from inorder.ports.slice_work import Slice


def message(identity: int | str, **fields: object) -> bytes:
    """The value of a record, as a publisher would send it."""
    return orjson.dumps({"id": identity, **fields})


def slice_of(*records: tuple[int, bytes | None], topic: str = "upsert", partition: int = 0) -> Slice:
    """A slice of (offset, value) pairs without record keys and timestamps."""
    nothing = [None] * len(records)
    offsets = [offset for offset, _ in records]
    return Slice(topic, partition, offsets, nothing, [value for _, value in records], nothing)
