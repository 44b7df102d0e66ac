"""What many records of one key amount to: one row a key, whatever the mode.

A row is folded in offset order, and the result is what the records would have left one by one. In mode `insert` that
is the first of them. In mode `update` nothing follows a delete, because a row that is gone is not made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from inorder.ports.table_store import NULL, Assigned, FoldedRow, RowKey

Values: TypeAlias = tuple[Assigned, ...]
Change: TypeAlias = tuple[RowKey, int, Values | None]
"""A key, an offset, and the values of an update; None deletes."""


def fold(changes: Iterable[Change], mode: str = "upsert") -> list[FoldedRow]:
    """The rows, keys ascending; changes that the mode leaves out are not counted in them."""
    # A list a key: values, offset, records, wavered. It is the innermost loop of the job, so it stays flat.
    rows: dict[RowKey, list[object]] = {}
    find, is_insert, is_update = rows.get, mode == "insert", mode == "update"
    for key, offset, values in changes:
        row = find(key)
        if row is None:
            rows[key] = [values, offset, 1, False]
            continue
        older: Values | None = row[0]  # type: ignore[assignment]  # the lists are as the line above makes them
        if is_insert or (is_update and older is None and values is not None):
            continue
        row[1] = offset
        row[2] += 1  # type: ignore[operator]  # as above
        if older is None or values is None:
            row[0], row[3] = _after_delete(values), row[3] or values is not older
            continue
        if not row[3]:
            row[3] = _disagree(older, values)
        row[0] = values if None not in values else _laid_over(older, values)
    return [FoldedRow(key, *rows[key]) for key in _ascending(rows)]  # type: ignore[arg-type]  # as above


def _after_delete(values: Values | None) -> Values | None:
    """A row that is made anew begins with nulls."""
    return None if values is None else tuple([NULL if value is None else value for value in values])


def _disagree(older: Values, newer: Values) -> bool:
    for old, new in zip(older, newer, strict=True):  # noqa: SIM110 - any() with a generator takes three times as long
        if old is not None and new is not None and old != new:
            return True
    return False


def _laid_over(older: Values, newer: Values) -> Values:
    return tuple([old if new is None else new for old, new in zip(older, newer, strict=True)])


def _ascending(rows: dict[RowKey, list[object]]) -> list[RowKey]:
    return sorted(rows)
