"""The job `upsert`, from the settings."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.progress import NOBODY, Listener, Progress, Several
from inorder.pipeline.upsert_work import TableTarget, UpsertWork
from inorder.settings import Settings
from inorder.settings.pipeline import UpsertSettings
from inorder.stores.table_opening import table_stores
from inorder.wiring.generation_gate import follow_generations
from inorder.wiring.json_schema import schema_text
from inorder.wiring.pipeline import run_work


def run_upsert(settings: Settings, *, once: bool, stop: threading.Event, listener: Listener = NOBODY) -> dict[str, Any]:
    """Runs the job `upsert` on Spark until `stop` is set, or once; returns its totals in records."""
    work = upsert_work(settings)
    _install(work)
    progress = Progress()
    drive = partial(follow_generations, settings, work, stop)
    run_work(settings, work, once=once, stop=stop, listener=Several(progress, listener), drive=drive)
    return dict(progress.totals())


def upsert_work(settings: Settings) -> UpsertWork:
    """The tables of the job `upsert`, as engines see them."""
    url = settings.database.require_url()
    return UpsertWork(tuple(TableTarget(mapping, table_stores(url, mapping)) for mapping in table_mappings(settings)))


def table_mappings(settings: Settings) -> list[TableMapping]:
    """The mappings of the job `upsert`; each pipeline is named after the table that it fills."""
    return [_mapping(settings, target) for target in settings.pipeline.targets]


def _mapping(settings: Settings, target: UpsertSettings) -> TableMapping:
    return TableMapping(
        pipeline=f"upsert:{target.table}",
        topic=target.topic,
        table=target.table,
        key=tuple(target.key) if len(target.key) > 1 else target.key[0],
        key_type=tuple(target.key_type) if len(target.key_type) > 1 else target.key_type[0],
        fields=tuple(target.fields.items()),
        mode=target.mode,
        max_value_bytes=target.max_value_bytes,
        schema=schema_text(settings, target.topic),
        deletes=target.deletes,
        nulls=target.nulls,
        max_attempts=target.max_attempts,
    )


def _install(work: UpsertWork) -> None:
    for target in work.targets:
        store = target.stores()
        try:
            store.install()
        finally:
            store.close()
