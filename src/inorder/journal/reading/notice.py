"""A notice: the store of this name has everything of a partition up to an offset.

It is a record of a small compacted topic. The key is `store/topic/partition`, so that the newest notice of each is kept
and whoever reads another store passes over it; the value is `{"offset": 41}`. Members of the value that are not known
here are let pass.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from inorder.ports.partition_reader import Place

_PARTS = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """How far a store is; never a promise, since the store alone knows."""

    store: str
    place: Place
    offset: int

    def key(self) -> bytes:
        """What newer notices replace it by."""
        topic, partition = self.place
        return f"{self.store}/{topic}/{partition}".encode()

    def value(self) -> bytes:
        """The rest of it."""
        return json.dumps({"offset": self.offset}).encode()


def notice_of(key: bytes | None, value: bytes | None) -> Notice | None:
    """The notice of a record; None for whatever else lies on the topic.

    >>> notice_of(b"9f/journal/3", b'{"offset": 41}')
    Notice(store='9f', place=('journal', 3), offset=41)
    """
    try:
        parts, found = (key or b"").decode().split("/"), json.loads(value or b"")
        offset = found["offset"] if isinstance(found, dict) else None
        if len(parts) != _PARTS or type(offset) is not int:
            return None
        return Notice(parts[0], (parts[1], int(parts[2])), offset)
    except (ValueError, KeyError, RecursionError):
        return None
