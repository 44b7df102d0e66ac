"""Settings of the pipeline that are fine alone and wrong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from inorder.pipeline.mapping import RESERVED_COLUMNS
from inorder.settings.pipeline import PipelineSettings, UpsertSettings

if TYPE_CHECKING:
    from inorder.settings.root import Settings


def of_pipeline(settings: Settings) -> Iterator[str]:
    """A sentence for each pair of settings that cannot both hold."""
    pipeline = settings.pipeline
    yield from _one_way(pipeline)
    for place, target in _places(pipeline):
        yield from _columns(place, target)
        if target.table == settings.relay.table:
            yield (
                f"{place}.table and relay.table are both {target.table!r}; the pipeline cannot write into the outbox."
            )
    for name in ("topic", "table"):
        for value, count in Counter(getattr(target, name) for target in pipeline.tables).items():
            if count > 1:
                yield f"pipeline.tables name the {name} {value!r} {count} times; a {name} belongs to one of them."


def _one_way(pipeline: PipelineSettings) -> Iterator[str]:
    if pipeline.tables and "upsert" in pipeline.model_fields_set:
        yield (
            "pipeline.upsert and pipeline.tables are both given; "
            "write the table of pipeline.upsert as one more of pipeline.tables."
        )


def _places(pipeline: PipelineSettings) -> Iterator[tuple[str, UpsertSettings]]:
    yield from ((f"pipeline.tables.{index}", target) for index, target in enumerate(pipeline.tables))
    if not pipeline.tables:
        yield "pipeline.upsert", pipeline.upsert


def _columns(place: str, target: UpsertSettings) -> Iterator[str]:
    if len(target.key_type) not in (1, len(target.key)):
        yield (
            f"{place}.key names {len(target.key)} columns and {place}.key_type {len(target.key_type)} types; "
            "name one type for each column, or one for all."
        )
    for name in target.key:
        if name in target.fields or target.key.count(name) > 1:
            yield (
                f"{place}.key = {name!r} is also listed in {place}.fields, or twice; "
                "the key is a column of its own, so leave it out of the fields."
            )
    for name in RESERVED_COLUMNS:
        if name in (*target.key, *target.fields):
            which = "key" if name in target.key else "fields"
            yield (
                f"{place}.{which} names {name!r}, a column that inorder itself keeps in "
                f"{place}.table = {target.table!r}; rename the field."
            )
    if target.mode == "insert" and target.deletes == "tombstone" and "deletes" in target.model_fields_set:
        yield f"{place}.deletes = 'tombstone' contradicts {place}.mode = 'insert', which never takes a row away."
