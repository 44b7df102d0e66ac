"""A partition with its history in memory: records, slices applied, letters, and a mapping that learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Reading, Slice
from inorder.model.errors import GuaranteeError
from inorder.model.partitioning import Extent, Place
from inorder.pipeline.dead_letters import Retrier, RetryResult
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import LetterFilter, Objection, StoredLetter
from tests.fakes.table_store import MemoryDeadLetters, MemoryTableStore

TOPIC = "upsert"
PLACE: Place = (TOPIC, 0)
# As long as `n` is an integer, text in it is rejected; later the field becomes a text and everything is valid.
STRICT = TableMapping("test", TOPIC, "messages", fields=(("n", "integer"), ("data", "text")))
RELAXED = replace(STRICT, fields=(("n", "text"), ("data", "text")))

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


@dataclass
class MemorySource:
    """A topic of one partition; offsets may have holes, and the oldest records may be gone."""

    records: list[Record] = field(default_factory=list)
    first: int = 0
    end: int = 0
    reads: int = 0

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return {0: Extent(self.first, self.end)} if topic == TOPIC else None

    def partitions(self, topic: str) -> int | None:
        return 1 if topic == TOPIC else None

    def topic_id(self, topic: str) -> str | None:
        raise AssertionError(topic)

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,  # noqa: ARG002 - the port's signature
    ) -> PartitionReader:
        assert reports_ends
        assert not headers
        start = starts[PLACE] or 0
        if start < self.first:
            raise GuaranteeError(f"offset {start} is gone")
        self.reads += 1
        return MemoryReader([record for record in self.records if start <= record[0] < self.end])


@dataclass
class MemoryReader:
    """Returns three records per read, then the end."""

    records: list[Record]

    def read(self, most: int, seconds: float) -> Reading:
        assert seconds > 0
        count = min(most, 3)
        some, self.records = self.records[:count], self.records[count:]
        return Reading([sliced(*some)] if some else [], frozenset() if some else frozenset({PLACE}))

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class MemoryConditionalLog:
    """Appends to the source, or removes the offset again."""

    source: MemorySource

    def send_unless(self, letter: StoredLetter, objection: Callable[[int], Objection | None]) -> Objection | int:
        offset = self.source.end
        objected = objection(offset)
        if objected is None:
            self.source.records.append((offset, letter.key, letter.value))
        self.source.end = offset + 2  # the record, or what is left of it, and the transaction's marker
        return offset if objected is None else objected

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class History:
    """What happened to one partition so far."""

    store: MemoryTableStore = field(default_factory=MemoryTableStore)
    source: MemorySource = field(default_factory=MemorySource)

    def publish(self, *records: Record) -> None:
        """Adds records to the topic that are not read yet."""
        self.source.records += records
        self.source.end = max([self.source.end, *(offset + 1 for offset, _, _ in records)])

    def consume(self, mapping: TableMapping = STRICT) -> None:
        """Applies all that is in the topic."""
        at = self.store.pointers(TOPIC)
        start = at[0].next_offset if at else 0
        if new := [record for record in self.source.records if record[0] >= start]:
            apply_slice(self.store, mapping, sliced(*new))

    def lived(self, *records: Record) -> History:
        """Both, one record after the other."""
        for record in records:
            self.publish(record)
            self.consume()
        return self

    def retry(
        self,
        *,
        mapping: TableMapping = RELAXED,
        through_topic: bool = False,
        settles_stale: bool = False,
        newest_generation: int = 0,
        is_closed: bool = False,
        wanted: LetterFilter | None = None,
    ) -> list[RetryResult]:
        """Retries what is left, as the command does."""
        letters = MemoryDeadLetters(self.store, newest_generation=newest_generation)
        log = MemoryConditionalLog(self.source) if through_topic else None
        retrier = Retrier(
            self.store, mapping, self.source, letters, "mended", settles_stale, log, lambda _: not is_closed
        )
        retried: list[RetryResult] = []
        for place in letters.places(wanted or LetterFilter()):
            page = letters.page(place, wanted or LetterFilter())
            for some in ([letter] for letter in page) if through_topic else [page]:
                retried += retrier.retry(list(some))
        return retried

    @property
    def rows(self) -> dict[object, tuple[object, ...]]:
        return {key: (*row.values, row.version[1]) for key, row in self.store.contents.rows.items()}

    @property
    def left(self) -> list[int]:
        return sorted(offset for _, _, offset in self.store.contents.letters)


def sliced(*records: Record) -> Slice:
    offsets, keys, values = (list(column) for column in zip(*records, strict=True))
    return Slice(TOPIC, 0, offsets, keys, values, [None] * len(offsets))
