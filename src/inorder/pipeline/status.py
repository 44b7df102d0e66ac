"""The progress of the job `upsert`, from its pointers and the ends of its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from inorder.database import sql
from inorder.database.database import Database, statements_of, written_at
from inorder.engines.slice_work import TopicSource
from inorder.engines.survey import Backlog, BacklogSource, backlog, behind
from inorder.model.errors import ConfigurationError, RejectedError
from inorder.model.partitioning import Place
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.stores.ports import LetterFilter
from inorder.topics.generations import own_topics
from inorder.topics.stores.generations import SqlTopicGenerations

_SUMS = ("applied", "identical", "stale", "ignored", "rejected")


def pipeline_status(mappings: Sequence[TableMapping], database: Database, source: BacklogSource) -> dict[str, Any]:
    """What became of the records, how many offsets wait, and how long ago the last slice was applied."""
    read = pipeline_progress(mappings, database)
    found = backlog(source, tuple(read.pipelines), read.pointers, read.ends)
    return status_fields(read.pipelines, read.rows, found, datetime.now(UTC)) | {
        "unknown_fields": unknown_fields(database, [mapping.pipeline for mapping in mappings]) if read.rows else {},
        "waiting": waiting_partitions(database, [mapping.pipeline for mapping in mappings]) if read.rows else [],
    }


def pipeline_backlog(mappings: Sequence[TableMapping], database: Database, source: BacklogSource) -> Backlog:
    """What is not applied, what was stale, and the dead letters: for the metrics of the job."""
    read = pipeline_progress(mappings, database)
    found = backlog(source, tuple(read.pipelines), read.pointers, read.ends)
    letters = {
        (name, code): number
        for name in sorted({row.pipeline for row in read.rows})
        for code, number in SqlDeadLetters(database).counts(LetterFilter(pipeline=name)).items()
    }
    return replace(found, stale={(row.topic, row.partition): row.stale for row in read.rows}, dead_letters=letters)


def pipeline_lag(mappings: Sequence[TableMapping], database: Database, source: TopicSource) -> dict[Place, int]:
    """How many offsets of each partition wait."""
    read = pipeline_progress(mappings, database)
    return behind(source, tuple(read.pipelines), read.pointers, read.ends)


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The pointers of the topics that some mappings read, generations included."""

    pipelines: Mapping[str, str]
    """By Kafka topic."""
    rows: Sequence[PartitionProgress]
    ends: Mapping[Place, int]
    """Where partitions of closed generations end. Copies may lie behind (`inorder topics migrate`)."""

    @property
    def pointers(self) -> dict[Place, int]:
        return pointers_of(self.rows)


def pipeline_progress(mappings: Sequence[TableMapping], database: Database) -> PipelineProgress:
    """Reads the pointers; those of a topic that a mapping named before are left out."""
    rows = [row for mapping in mappings for row in _own_rows(mapping, database)]
    found = _ask_each(database, "ends", sorted({row.pipeline for row in rows}))
    return PipelineProgress(
        {mapping.topic: mapping.pipeline for mapping in mappings} | {row.topic: row.pipeline for row in rows},
        rows,
        {(topic, partition): end for topic, partition, end in found},
    )


def _own_rows(mapping: TableMapping, database: Database) -> list[PartitionProgress]:
    rows = partition_progress(database, mapping.pipeline)
    if {row.topic for row in rows} <= {mapping.topic}:
        return rows
    own = own_topics(mapping.topic, SqlTopicGenerations(database).read(mapping.topic))
    return [row for row in rows if row.topic in own]


def pointers_of(rows: Sequence[PartitionProgress]) -> dict[Place, int]:
    """The next offset of each partition."""
    return {(row.topic, row.partition): row.next_offset for row in rows}


def status_fields(
    pipelines: Mapping[str, str],
    rows: Sequence[PartitionProgress],
    found: Backlog,
    now: datetime,
) -> dict[str, Any]:
    """The status as JSON has it; partitions without a pointer have not been begun."""
    begun, waiting = {(row.topic, row.partition): row for row in rows}, found.records
    partitions = []
    for topic, number in sorted({*begun, *waiting}):
        row = begun.get((topic, number)) or PartitionProgress(pipelines[topic], topic, number, 0, 0, 0, 0, 0, 0, None)
        fields = asdict(row)
        updated_at = fields.pop("updated_at")
        age = None if updated_at is None else round((now - updated_at).total_seconds(), 3)
        place, oldest = (topic, number), found.oldest_seconds.get((topic, number))
        shown = {
            "behind": waiting.get(place),
            "undecided": found.undecided.get(place),
            "oldest_seconds": None if oldest is None else round(oldest, 3),
            "last_slice_seconds": age,
        }
        partitions.append({**fields, **shown})
    ages = [one["last_slice_seconds"] for one in partitions if one["last_slice_seconds"] is not None]
    return {
        "pipelines": sorted(set(pipelines.values())),
        **{name: sum(one[name] for one in partitions) for name in _SUMS},
        "behind": sum(waiting.values()),
        "undecided": sum(found.undecided.values()),
        "oldest_seconds": round(max(found.oldest_seconds.values()), 3) if found.oldest_seconds else None,
        "last_slice_seconds": min(ages, default=None),
        "partitions": partitions,
    }


# The pointer rows of a pipeline, in any database.

_STATEMENTS = sql.load("inorder.pipeline", "sql/progress.sql")


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A pointer row; its counters moved with the commits that they count."""

    pipeline: str
    topic: str
    partition: int
    next_offset: int
    applied: int
    identical: int
    stale: int
    ignored: int
    rejected: int
    updated_at: datetime | None
    """When its last slice was applied, by the database's clock."""


def partition_progress(database: Database, pipeline: str) -> list[PartitionProgress]:
    """The partitions of a pipeline that have a pointer; none where nothing was installed yet."""
    if not database.execute(statements_of("inorder.topics", database.dialect, "pointers.sql")["exists"]).rows:
        return []
    rows = database.execute(_STATEMENTS["progress"], {"pipeline": pipeline}).rows
    found = [PartitionProgress(*row) for row in rows]
    return [replace(one, updated_at=written_at(one.updated_at)) for one in found]


def waiting_partitions(database: Database, pipelines: Iterable[str]) -> list[dict[str, Any]]:
    """The partitions that wait because their table refuses most records, with the reason and since when."""
    return [
        {
            "topic": topic,
            "partition": partition,
            "since": None if (at := written_at(since)) is None else at.isoformat(timespec="seconds"),
            "reason": reason,
        }
        for topic, partition, since, reason in _ask_each(database, "waiting", pipelines)
    ]


def unknown_fields(database: Database, pipelines: Iterable[str]) -> dict[str, int]:
    """How many records had which fields that no mapping names, most frequent first."""
    found: dict[str, int] = {}
    for (text,) in _ask_each(database, "unknown_fields", pipelines):
        for name, number in (orjson.loads(text) if text else {}).items():
            found[name] = found.get(name, 0) + number
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _ask_each(database: Database, statement: str, pipelines: Iterable[str]) -> list[tuple[Any, ...]]:
    """The rows of some pipelines; none where the pointers are of an older version and have no column for it."""
    try:
        return [row for name in pipelines for row in database.execute(_STATEMENTS[statement], {"pipeline": name}).rows]
    except (RejectedError, ConfigurationError):
        return []
