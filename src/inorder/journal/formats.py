"""The Spark sink `inorder.journal`: rows as events of journals, one journal per id.

A task reads the end of each journal before it appends, and leaves out what the journal has. So a task or a batch that
is run again appends nothing twice. Nothing fences two writers of one id against each other: the first one's events
count and the other's are forks, which every reader reports (`life.py`).

What must hold: all rows of an id are in one Spark partition (`engines/formats.py`). An event that the journal is past
and does not have is refused (`append_missing`), except below the first number that a journal began with: there such an
event cannot be distinguished from a deleted one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from inorder.engines.formats import (
    BYTES,
    JOURNAL,
    WHOLE_NUMBER,
    Column,
    Distribution,
    FormatOptions,
    KnownOptions,
    Sink,
    require_apart,
    sorted_rows,
)
from inorder.journal.client import JournalClient, append_missing
from inorder.model.errors import GuaranteeError, ValidationError
from inorder.model.journal import Event, Key

THREADS: Final = 8
"""How many journals are appended to at a time; each waits for Kafka most of the time."""

_HASH_BYTES: Final = 8

OpenJournals = Callable[[], JournalClient]


class JournalFormat(Sink):
    """Spark's side of the format; the settings say how journals are opened."""

    known_options = KnownOptions(
        "inorder.journal",
        frozenset({"topic", "whole_journals"}),
        {
            "bootstrap.servers": ("kafka", "bootstrap.servers"),
            "store": ("journal", "store"),
            "url": ("database", "url"),
        },
        takes_kafka=True,
    )
    known_columns = (
        Column("id", ("string",)),
        Column("seq_nr", WHOLE_NUMBER),
        Column("payload", (*BYTES, "void")),
        Column("tags", ("array<string>",), is_needed=False),
    )

    @abstractmethod
    def journals(self, options: FormatOptions) -> OpenJournals:
        """How a task opens the journals; pickled."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called on the driver, once a write."""
        return _JournalWriter(*self._parts(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Called on the driver, several times a batch."""
        return _JournalStreamWriter(*self._parts(schema, overwrite))

    def _parts(self, schema: StructType, overwrite: bool) -> tuple[OpenJournals, str, Distribution]:
        options = self.check(schema, overwrite)
        topic = options.require("topic", "journals live on one")
        return self.journals(options), topic, self.distribution(schema, options, JOURNAL)


@dataclass(frozen=True)
class AppendCommit(WriterCommitMessage):
    """What one task reports to the driver."""

    events: int
    skipped: int
    """Events that the journals had already."""
    ids: bytes
    """A hash of each journal's id, 8 bytes: enough to see that two tasks had the same."""

    def journals(self) -> list[str]:
        return [self.ids[first : first + _HASH_BYTES].hex() for first in range(0, len(self.ids), _HASH_BYTES)]


class _TaskWriter:
    def __init__(self, open_journals: OpenJournals, topic: str, spread: Distribution) -> None:
        self._open = open_journals
        self._topic = topic
        self._spread = spread

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = sorted_rows(JOURNAL, self._spread, iterator)
        first = next(batches, None)
        if first is None:
            return AppendCommit(0, 0, b"")
        with self._open() as journals, ThreadPoolExecutor(THREADS) as threads:
            task = AppendTask(journals, self._topic)
            for records in chain([first], batches):
                for appended in [threads.submit(append) for append in task.appends(group_events(records))]:
                    task.appended += appended.result()
        return AppendCommit(task.appended, task.events - task.appended, hash_ids(task.ids))


class _JournalWriter(_TaskWriter, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check(messages)


class _JournalStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _check(messages)


def _check(messages: list[WriterCommitMessage | None]) -> None:
    require_apart(JOURNAL.what, (message.journals() for message in messages if isinstance(message, AppendCommit)))


def hash_ids(ids: Iterable[str]) -> bytes:
    return b"".join(blake2b(id.encode(), digest_size=_HASH_BYTES).digest() for id in ids)


class AppendTask:
    """What one task has appended so far: the last number of each journal, and the sums."""

    def __init__(self, journals: JournalClient, topic: str) -> None:
        self._journals = journals
        self._topic = topic
        self._ends: dict[str, int] = {}
        self.events = 0
        self.appended = 0

    @property
    def ids(self) -> Iterable[str]:
        return self._ends.keys()

    def appends(self, events: Mapping[str, list[Event]]) -> Iterator[Callable[[], int]]:
        """One append for each journal; all must be done before the next call."""
        for id, of_journal in events.items():
            self._check_rising(id, of_journal)
            self._ends[id] = of_journal[-1].seq_nr
            self.events += len(of_journal)
            yield partial(append_missing, self._journals, Key(id, self._topic), of_journal)

    def _check_rising(self, id: str, events: list[Event]) -> None:
        last = self._ends.get(id, 0)
        for event in events:
            if event.seq_nr <= last:
                raise GuaranteeError(
                    f"Out of order: event {event.seq_nr} came after {last} in journal {id!r}.",
                    hint="Each number comes once; inorder.spark.in_order(df) sorts them.",
                )
            last = event.seq_nr


def group_events(records: pa.RecordBatch) -> dict[str, list[Event]]:
    """The events of each journal in an Arrow batch, in their order."""
    has_tags = "tags" in records.schema.names
    tags = records.column("tags").to_pylist() if has_tags else [None] * records.num_rows
    columns = (records.column(name).to_pylist() for name in ("id", "seq_nr", "payload"))
    found: dict[str, list[Event]] = {}
    for id, seq_nr, payload, tagged in zip(*columns, tags, strict=True):
        if id is None or seq_nr is None:
            raise ValidationError("id" if id is None else "seq_nr", "a row has none.", hint="Each event needs both.")
        found.setdefault(id, []).append(Event(seq_nr, payload, frozenset(tagged or ())))
    return found
