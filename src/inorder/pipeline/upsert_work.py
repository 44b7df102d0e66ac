"""The job `upsert` as engines see it: some topics, each with the table that it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inorder.model.errors import ConfigurationError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.ports.slice_work import Slice, SliceOutcome, SliceWorker
from inorder.ports.table_store import Pointer, TableStore, TableStores


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A mapping with the stores of its table."""

    mapping: TableMapping
    stores: TableStores


@dataclass(frozen=True, slots=True)
class UpsertWork:
    """Several tables in one application; a topic feeds one of them."""

    targets: tuple[TableTarget, ...]
    needs_headers: bool = False

    def __post_init__(self) -> None:
        _check_distinct("topic", [target.mapping.topic for target in self.targets])
        _check_distinct("pipeline", [target.mapping.pipeline for target in self.targets])

    @property
    def name(self) -> str:
        """The pipelines."""
        return ", ".join(target.mapping.pipeline for target in self.targets)

    @property
    def topics(self) -> tuple[str, ...]:
        """One for each table."""
        return tuple(target.mapping.topic for target in self.targets)

    def open(self) -> SliceWorker:
        """A worker whose connections are opened when a topic is first asked for."""
        return _UpsertWorker(self.targets)


class _UpsertWorker:
    """A store for each topic that was asked for."""

    def __init__(self, targets: tuple[TableTarget, ...]) -> None:
        self._targets = {target.mapping.topic: target for target in targets}
        self._stores: dict[str, TableStore] = {}

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._store(topic).pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        return apply_slice(self._store(batch.topic), self._targets[batch.topic].mapping, batch, expected)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def _store(self, topic: str) -> TableStore:
        if topic not in self._stores:
            self._stores[topic] = self._targets[topic].stores()
        return self._stores[topic]


def _check_distinct(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"The {what} {name!r} is named by {names.count(name)} tables of one job.",
                hint=f"A {what} belongs to one table; name each once in [[pipeline.tables]].",
            )
