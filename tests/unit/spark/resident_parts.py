"""A source and a work in memory, for tests of resident tasks without Spark, Kafka and a database."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Pointer, Reading, Slice, SliceOutcome, SliceWorker
from inorder.model.errors import InorderError
from inorder.model.partitioning import Extent, Place
from tests.fakes.table_store import slice_of


@dataclass(eq=False)
class ScriptedSource:
    """Hands out the looks that it was given, then nothing; an error is raised in its turn."""

    looks: list[Reading | InorderError] = field(default_factory=list)
    starts: dict[Place, int | None] = field(default_factory=dict)
    is_open: bool = False
    ids: dict[str, str] = field(default_factory=dict)
    asked: threading.Event = field(default_factory=threading.Event)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        raise AssertionError(f"a task does not ask for {topic}")

    def partitions(self, topic: str) -> int | None:
        raise AssertionError(f"a task does not ask for {topic}")

    def topic_id(self, topic: str) -> str | None:
        return self.ids.get(topic)

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        assert not headers
        self.epochs = dict(epochs)
        self.reports_ends = reports_ends
        self.starts = dict(starts)
        self.is_open = True
        return self

    def read(self, most: int, seconds: float) -> Reading:
        assert most > 1
        if not self.looks:
            self.asked.set()
            threading.Event().wait(min(seconds, 0.01))
            return Reading([], frozenset())
        look = self.looks.pop(0)
        if isinstance(look, InorderError):
            raise look
        return look

    def close(self) -> None:
        self.is_open = False


@dataclass(eq=False)
class CountingWork:
    """Takes every record for applied, and keeps what it was handed."""

    found: dict[str, dict[int, Pointer]] = field(default_factory=dict)
    error: InorderError | None = None
    name: str = "demo"
    topics: tuple[str, ...] = ("upsert",)
    needs_headers: bool = False
    handed: list[tuple[Place, list[int], int]] = field(default_factory=list)
    closed: int = 0

    def open(self) -> SliceWorker:
        return self

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self.found.get(topic, {})

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        raise AssertionError(f"a task creates no pointer: {topic} {topic_id} {firsts}")

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        if self.error is not None:
            raise self.error
        self.handed.append(((batch.topic, batch.partition), list(batch.offsets), expected))
        return SliceOutcome(batch.topic, batch.partition, batch.next_offset, read=len(batch), applied=len(batch))

    def close(self) -> None:
        self.closed += 1


def look(*offsets: int, partition: int = 0, ended: tuple[Place, ...] = ()) -> Reading:
    """A poll with one slice, or none."""
    some = [slice_of(*((offset, b"{}") for offset in offsets), partition=partition)] if offsets else []
    return Reading(some, frozenset(ended))
