"""Rows of the deimos layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inorder.outbox.layouts import reading
from inorder.ports.outbox_store import OutboxRow

# As in the native layout: a third less time for the row that is like most rows.
_new: Callable[[type[OutboxRow], tuple[Any, ...]], OutboxRow] = tuple.__new__


def decode(row: Sequence[Any]) -> OutboxRow:
    """Columns: id, topic, key, message, partition_key.

    Deimos writes the key a second time as the partition key where none was chosen; such a row has none of its own.
    """
    id, topic, key, message, partition_key = row
    if partition_key is None and topic.__class__ is str and topic:
        return _new(OutboxRow, (id, topic, key, message, (), None, None, "", None))
    flaws: list[str] = []
    name = reading.topic(topic, "topic", flaws)
    routed = reading.text_bytes(partition_key, "partition_key", flaws)
    return OutboxRow(
        id, name, key, message, (), None, None, "; ".join(flaws), partition_key=None if routed == key else routed
    )
