"""The job `upsert` as engines see it: some topics, each with the table that it feeds."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from inorder.database.database import Database
from inorder.database.schema_plan import install_missing, table_names
from inorder.engines.progress import NULL_LISTENER, CompositeListener, Listener, RunTotals
from inorder.engines.running import LOOK_SECONDS, RunEngine, SparkEngine, follow
from inorder.engines.slice_work import Pointer, Slice, SliceOutcome, SliceWork, SliceWorker
from inorder.model.errors import ConfigurationError, InorderError, MassRefusalError, OtherTopicError
from inorder.model.names import suggest
from inorder.model.partitioning import Place
from inorder.outbox.outbox import trace_headers
from inorder.pipeline.brake import Brake
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import TableStore, TableStores
from inorder.pipeline.stores.table import SqlTableStores, table_sql
from inorder.settings import Settings
from inorder.settings.pipeline import UpsertSettings
from inorder.topics.gate import BoundedWork, Ends, may_apply, version_generation
from inorder.topics.generations import Generation, TopicState, own_topics
from inorder.topics.pauses import NO_PAUSES, Pauses
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations

if TYPE_CHECKING:
    from inorder.observe.tracing import AppliedTraces

log = logging.getLogger("inorder.pipeline")


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A mapping with the stores of its table."""

    mapping: TableMapping
    stores: TableStores


@dataclass(frozen=True, slots=True)
class UpsertWork:
    """Several tables in one application; a topic feeds one of them."""

    targets: tuple[TableTarget, ...]
    traces: bool = False
    """Whether spans are written for records that carry the context of one."""

    @property
    def needs_headers(self) -> bool:
        """Only for the context of spans."""
        return self.traces

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

    def without_keys(self) -> UpsertWork:
        """The same for records whose Kafka keys are not known: none is refused for the lack of one."""
        targets = [replace(each, mapping=replace(each.mapping, keyless="apply")) for each in self.targets]
        return replace(self, targets=tuple(targets))

    def bounded(self, ends: Ends) -> SliceWork:
        """The same up to the ends of closed generations."""
        return BoundedWork(self, ends)

    def open(self) -> SliceWorker:
        """A worker whose connections are opened when a topic is first asked for."""
        return _UpsertWorker(self.targets, traces=self.traces)


_LONGEST_REASON = 1_000


class _UpsertWorker:
    """A store for each topic that was asked for."""

    def __init__(self, targets: tuple[TableTarget, ...], *, traces: bool) -> None:
        self._targets = {target.mapping.topic: target for target in targets}
        self._has_traces = traces
        self._traces: AppliedTraces | None = None
        self._stores: dict[str, TableStore] = {}
        self._brakes: dict[Place, Brake] = {}

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._store(topic).pointers(topic)

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        return self._store(topic).begin(topic, topic_id, firsts)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        mapping, place = self._targets[batch.topic].mapping, (batch.topic, batch.partition)
        if place not in self._brakes:
            self._brakes[place] = Brake(mapping.max_refused_share)
        store = self._store(batch.topic)
        began = time.time_ns() if self._has_traces else 0
        try:
            outcome = apply_slice(store, mapping, batch, expected, self._brakes[place])
        except MassRefusalError as error:
            if error.is_certain:
                with suppress(InorderError):  # the log and the metrics have it, too
                    store.note_waiting(batch.topic, batch.partition, error.message[:_LONGEST_REASON])
            raise
        if self._has_traces and batch.headers:
            self._trace(mapping, batch, outcome, began)
        return outcome

    def _trace(self, mapping: TableMapping, batch: Slice, outcome: SliceOutcome, began: int) -> None:
        if self._traces is None:
            # Not before: the driver opens workers too, in a process whose provider belongs to the application.
            from inorder.observe.tracing import AppliedTraces, provide

            provide("inorder-pipeline")
            self._traces = AppliedTraces()
        # What was replayed comes first, as it lies below the pointer; what belongs to a later generation comes last.
        new = slice(outcome.replayed, outcome.read)
        place = batch.topic, batch.partition
        self._traces.applied(mapping.table, place, batch.offsets[new], batch.headers[new], began)

    def close(self) -> None:
        if self._traces is not None:
            from inorder.observe.tracing import flush

            flush()
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


# The job `upsert`.

UPSERT: Final = "upsert"
"""Its name, as `inorder pipeline run` and `inorder pause pipeline` know it."""
INSTALL: Final = "inorder schema install --layout table"


def run_upsert(
    work: UpsertWork,
    engine: SparkEngine,
    gate: GenerationGate,
    *,
    once: bool,
    stop: threading.Event,
    listener: Listener = NULL_LISTENER,
) -> dict[str, Any]:
    """Runs the job `upsert` on Spark until `stop` is set, or once; returns its totals in records.

    Tables that are paused are not read; a run that ends by itself does not wait for them.
    """
    progress = RunTotals()
    if once and gate.reading(work) is None:
        log.warning("pipeline.paused", extra={"pipeline": work.name})
        return dict(progress.totals())
    drive = partial(follow_generations, gate, work, stop)
    engine.run(work, once=once, stop=stop, listener=CompositeListener(progress, listener), drive=drive)
    return dict(progress.totals())


def prepare_tables(targets: Iterable[TableTarget], database: Database, *, creates: bool = False) -> None:
    """Creates the pointers and dead letters where they are missing, and checks the target tables.

    A target table that does not exist is created if `creates` is set, and refused otherwise: its name may be mistyped,
    and the job would load the whole topic into a table that no one reads. A Delta table has its own place.
    """
    for target in targets:
        sql, is_elsewhere = table_sql(database.dialect, target.mapping), bool(target.mapping.target)
        if not creates and not is_elsewhere and not database.execute(sql["existing_columns"], sql.table_bound()).rows:
            raise _missing_table(target.mapping.table, table_names(database))
        install_missing(database, sql.install(), INSTALL)
        if not is_elsewhere:
            with closing(target.stores()) as store:
                store.check()


def _missing_table(table: str, existing: Iterable[str]) -> ConfigurationError:
    others = [name for name in existing if not name.startswith("inorder_")]
    return ConfigurationError(
        f"Table {table!r} does not exist{suggest(table, others)}",
        hint=f"Correct `table` in the settings, or create the table: `{INSTALL}`. With pipeline.create_tables = true "
        "the job creates it.",
    )


def upsert_work(settings: Settings) -> UpsertWork:
    """The tables of the job `upsert`, as engines see them."""
    url = settings.database.require_url()
    targets = tuple(TableTarget(mapping, SqlTableStores(url, mapping)) for mapping in table_mappings(settings))
    if settings.observe.traces:
        trace_headers()  # raises where OpenTelemetry is missing
    if not any(target.mapping.target for target in targets):
        return UpsertWork(targets, settings.observe.traces)
    from inorder.pipeline.lake import LakeWork

    return LakeWork(targets, optimize_seconds=settings.pipeline.optimize_seconds)


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
        empty_texts=target.empty_texts,
        keyless=target.keyless,
        max_attempts=target.max_attempts,
        max_refused_share=target.max_refused_share,
        target=target.target or "",
    )


# A job reads its topics generation by generation: the engine runs on one, and is restarted with the next.
# `topics/gate.py` says what may be read and why. The gate is checked before each start of the engine and twice a second
# while it runs; the engine is only stopped and started with other topics.


class GenerationGate:
    """Which Kafka topics the tables of a job read now. Used by one thread at a time, or two that take turns."""

    def __init__(
        self,
        generations: SqlTopicGenerations,
        pointers: SqlPointers,
        read_pauses: Callable[[], Pauses] = lambda: NO_PAUSES,
    ) -> None:
        self._generations = generations
        self._pointers = pointers
        self._read_pauses = read_pauses

    def reading(self, work: UpsertWork) -> SliceWork | None:
        """The work with each topic's generation that may be applied, up to its ends; later ones' pointers are begun.

        Tables that are paused are left out; None where all are.
        """
        pauses = self._read_pauses()
        running = [target for target in work.targets if not pauses.of_table(UPSERT, target.mapping.table)]
        if not running:
            return None
        states = {state.topic: state for state in self._generations.read_all()}
        found = [self._generation(target.mapping, states.get(target.mapping.topic)) for target in running]
        targets = tuple(map(_reading, running, found))
        ends = tuple((each.topic, each.ends) for each in found if each is not None and each.ends is not None)
        reading = replace(work, targets=targets)
        return reading.bounded(ends) if ends else reading

    def _generation(self, mapping: TableMapping, state: TopicState | None) -> Generation | None:
        found: dict[str, dict[int, Pointer]] = defaultdict(dict)
        for topic, number, pointer in self._pointers.of_pipeline(mapping.pipeline):
            found[topic][number] = pointer
        numbers = {topic: [one.generation for one in some.values()] for topic, some in found.items()}
        _check_not_renamed(mapping, state, numbers)
        if state is None:
            return None
        generation = may_apply(state, lambda topic: {number: one.next_offset for number, one in found[topic].items()})
        rows = found[generation.topic]
        if generation.number and len(rows) < generation.partitions:
            self._pointers.begin(mapping.pipeline, generation, version_generation(state, generation, numbers))
        if any(one.end is None for one in rows.values()):
            self._pointers.close_generation(generation)
        return generation


def _check_not_renamed(mapping: TableMapping, state: TopicState | None, found: Mapping[str, Sequence[int]]) -> None:
    """Refuses a topic that is not the last one whose records the table has: their offsets do not compare.

    `found` are the generations of the pointers by Kafka topic. Each rename that was accepted began a higher one.
    """
    own = own_topics(mapping.topic, state)
    newest = max((number for topic in own for number in found.get(topic, ())), default=-1)
    others = sorted((max(numbers), topic) for topic, numbers in found.items() if topic not in own and numbers)
    if others and others[-1][0] > newest:
        raise OtherTopicError(
            f"The pipeline {mapping.pipeline!r} has applied topic {others[-1][1]!r} and now reads {mapping.topic!r}.",
            hint=f"If that is intended, run `inorder pipeline reset {mapping.topic}`: its records then count as newer"
            " than all that was applied. Else name the former topic, or another table.",
        )


def _reading(target: TableTarget, generation: Generation | None) -> TableTarget:
    if generation is None:
        return target
    return replace(target, mapping=replace(target.mapping, topic=generation.topic))


def follow_generations(
    gate: GenerationGate,
    work: UpsertWork,
    stop: threading.Event,
    run_engine: RunEngine,
    *,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on generation after generation, until `stop` is set or it ends on the last one by itself."""
    follow(partial(gate.reading, work), work.name, stop, run_engine, look=look)


# The JSON Schema of a topic, from its file.


def schema_text(settings: Settings, topic: str) -> str:
    """The JSON Schema of a topic, empty where it has none."""
    file = settings.schema_file(topic)
    if file is None:
        return ""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"topics.{topic}.json_schema names {str(file)!r}, which cannot be read: {error}.",
            hint="Name a UTF-8 file, from the folder of the settings file.",
        ) from error
