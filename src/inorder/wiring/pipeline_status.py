"""How far the job `upsert` has come, from its pointers and the ends of its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from inorder.pipeline.backlog import behind
from inorder.ports.partition_reader import Place
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.progress import PartitionProgress, partition_progress
from inorder.wiring.upsert import upsert_work

_SUMS = ("applied", "identical", "stale", "ignored", "rejected")


def pipeline_status(settings: Settings) -> dict[str, Any]:
    """What became of the records, how many offsets wait, and how long ago the last slice was applied."""
    mappings = [target.mapping for target in upsert_work(settings).targets]
    with closing(open_database(settings.database.require_url(), "inorder status")) as database:
        rows = [row for mapping in mappings for row in partition_progress(database, mapping.pipeline)]
    # The generations of a topic are topics of their own, which only the pointers name.
    pipelines = {mapping.topic: mapping.pipeline for mapping in mappings} | {row.topic: row.pipeline for row in rows}
    return told(pipelines, rows, offsets_behind(settings, tuple(pipelines), pointers_of(rows)), datetime.now(UTC))


def offsets_behind(settings: Settings, topics: Sequence[str], pointers: Mapping[Place, int]) -> dict[Place, int]:
    """What waits in each partition."""
    from inorder.kafka.partition_reader import KafkaSource

    return behind(KafkaSource(dict(settings.kafka.properties)), topics, pointers)


def pointers_of(rows: Sequence[PartitionProgress]) -> dict[Place, int]:
    """Where each partition goes on."""
    return {(row.topic, row.partition): row.next_offset for row in rows}


def told(
    pipelines: Mapping[str, str],
    rows: Sequence[PartitionProgress],
    waiting: Mapping[Place, int],
    now: datetime,
) -> dict[str, Any]:
    """The status as JSON has it; partitions without a pointer have not been begun."""
    begun = {(row.topic, row.partition): row for row in rows}
    partitions = []
    for topic, number in sorted({*begun, *waiting}):
        row = begun.get((topic, number)) or PartitionProgress(pipelines[topic], topic, number, 0, 0, 0, 0, 0, 0, None)
        fields = asdict(row)
        updated_at = fields.pop("updated_at")
        age = None if updated_at is None else round((now - updated_at).total_seconds(), 3)
        partitions.append({**fields, "behind": waiting.get((topic, number)), "last_slice_seconds": age})
    ages = [one["last_slice_seconds"] for one in partitions if one["last_slice_seconds"] is not None]
    return {
        "pipelines": sorted(set(pipelines.values())),
        **{name: sum(one[name] for one in partitions) for name in _SUMS},
        "behind": sum(waiting.values()),
        "last_slice_seconds": min(ages, default=None),
        "partitions": partitions,
    }
