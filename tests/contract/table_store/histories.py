"""Random histories of a partition, and random ways in which two writers bring them to a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from inorder.engines.slice_work import Slice
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from tests.contract.table_store.places import MAPPING, Place
from tests.fakes.table_store import Record, message, table_after

KEYS = range(3)
THERE_BEFORE = (0, 1)
"""Keys of rows that another program inserted, so that mode `update` has rows to update."""

_GARBAGE: list[Record] = [
    (None, b"?"),
    (None, b"[]"),
    (None, None),
    (b"x", None),
    (b"9", message(1, data="a")),
    (None, message(1, data=5)),
    (None, message("1", data="a")),
]


def _field(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.just("") | values


def _updates() -> st.SearchStrategy[Record]:
    fields = st.fixed_dictionaries(
        {}, optional={"enabled": _field(st.booleans()), "data": _field(st.sampled_from(["a", "A", "b", "b "]))}
    )
    return st.builds(lambda key, asked: (str(key).encode(), message(key, **asked)), st.sampled_from(KEYS), fields)


def _records() -> st.SearchStrategy[Record]:
    deletes: st.SearchStrategy[Record] = st.sampled_from(KEYS).map(lambda key: (str(key).encode(), None))
    return st.one_of(_updates(), _updates(), _updates(), deletes, st.sampled_from(_GARBAGE))


@dataclass(frozen=True)
class Step:
    """A writer applies a slice that begins so far below what is applied; or pointers are lost first."""

    writer: int
    back: int
    length: int
    loses_pointers: bool


@dataclass(frozen=True)
class History:
    """A partition's records with the gaps between their offsets, and how they are written."""

    records: list[Record]
    gaps: list[int]
    steps: list[Step]
    mapping: TableMapping

    def slice_of(self, begin: int, end: int) -> Slice:
        """Some records as a slice."""
        offsets = [sum(self.gaps[: index + 1]) for index in range(begin, min(end, len(self.records)))]
        some = self.records[begin:end]
        return Slice("upsert", 0, offsets, [key for key, _ in some], [value for _, value in some], [0] * len(some))


def _histories(modes: list[str]) -> st.SearchStrategy[History]:
    mappings = st.builds(
        lambda mode, nulls, deletes: replace(MAPPING, mode=mode, nulls=nulls, deletes=deletes),
        st.sampled_from(modes),
        st.sampled_from(["ignore", "write"]),
        st.sampled_from(["tombstone", "tombstone", "reject"]),
    )
    loses = st.sampled_from([False, False, False, True])
    steps = st.builds(Step, st.integers(0, 1), st.integers(0, 6), st.integers(1, 9), loses)
    return st.builds(
        History,
        st.lists(_records(), min_size=10, max_size=24),
        st.lists(st.integers(1, 3), min_size=24, max_size=24),
        st.lists(steps, min_size=4, max_size=8),
        mappings,
    )


HISTORIES = _histories(["upsert", "upsert", "insert", "update"])


def check(place: Place, history: History) -> None:
    """Writes a history and holds the table against the model after every slice."""
    mapping = history.mapping
    writers = [place.open(mapping), place.open(mapping)]
    place.insert_empty(THERE_BEFORE)
    model = _Model(place, history)
    applied = 0
    for step in history.steps:
        if step.loses_pointers:
            place.lose_pointers()
            applied = 0
        begin = max(0, applied - step.back)
        batch = history.slice_of(begin, begin + step.length)
        if len(batch):
            outcome = apply_slice(writers[step.writer], mapping, batch)
            assert outcome.read == _sum_of(outcome)
            applied = max(applied, begin + len(batch))
        model.check(applied)
    for begin in range(applied, len(history.records), 5):
        apply_slice(writers[begin % 2], mapping, history.slice_of(begin, begin + 5))
        model.check(min(begin + 5, len(history.records)))


def _sum_of(outcome: Any) -> int:
    names = ("applied", "identical", "stale", "ignored", "rejected", "replayed")
    return sum(getattr(outcome, name) for name in names)


class _Model:
    """What the table must be, and what a reader saw of it so far."""

    def __init__(self, place: Place, history: History) -> None:
        self._place = place
        self._history = history
        self._furthest = 0
        self._seen: dict[bytes, int] = {}

    def check(self, applied: int) -> None:
        """A table whose pointers were lost stays as it was until the replay has passed where it had been."""
        self._furthest = max(self._furthest, applied)
        mapping = self._history.mapping
        expected = table_after(
            self._history.records[: self._furthest],
            mode=mapping.mode,
            nulls=mapping.nulls,
            deletes=mapping.deletes,
            before=THERE_BEFORE,
        )
        rows = self._place.rows(mapping)
        assert {key: row[:-1] for key, row in rows.items()} == expected
        versions, tombstones = (
            {str(key).encode(): int(str(row[-1])) for key, row in rows.items()},
            self._place.tombstones(),
        )
        assert versions.keys().isdisjoint(tombstones)
        versions |= tombstones
        assert all(versions[key] >= version for key, version in self._seen.items())
        self._seen = versions
