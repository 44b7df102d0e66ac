"""A job that reads its topics generation by generation: the engine runs on one, and is begun anew with the next.

`topics/gate.py` says what may be read and why. Here it is asked before each start of the engine and twice a second
while it runs; the engine knows nothing of it, it is just stopped and started with other topics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from inorder.model.errors import TransientError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.upsert_work import TableTarget, UpsertWork
from inorder.ports.slice_work import SliceWork
from inorder.ports.topic_generations import Generation, Pointers, TopicState
from inorder.settings import Settings
from inorder.stores.database import Database
from inorder.stores.opening import open_database
from inorder.stores.pointers import SqlPointers
from inorder.stores.topic_generations import SqlTopicGenerations
from inorder.topics.ended_work import EndedWork
from inorder.topics.gate import may_apply
from inorder.wiring.pipeline import RunEngine
from inorder.wiring.until_changed import until_changed

log = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0


class GenerationGate:
    """Which Kafka topics the tables of a job read now. Used by one thread at a time, or two that take turns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._generations = SqlTopicGenerations(database)
        self._pointers = SqlPointers(database)

    def reading(self, work: UpsertWork) -> SliceWork:
        """The work with each topic's generation that may be applied, up to its ends; later ones' pointers are begun."""
        states = {state.topic: state for state in self._generations.read_all()}
        found = [self._generation(target.mapping, states.get(target.mapping.topic)) for target in work.targets]
        targets = tuple(map(_reading, work.targets, found))
        ends = tuple((each.topic, each.ends) for each in found if each is not None and each.ends is not None)
        reading = replace(work, targets=targets)
        return EndedWork(reading, ends) if ends else reading

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
        self._database.close()

    def _generation(self, mapping: TableMapping, state: TopicState | None) -> Generation | None:
        if state is None:
            return None
        generation = may_apply(state, lambda topic: self._of_pipeline(mapping.pipeline, topic))
        self._begin(mapping.pipeline, generation)
        return generation

    def _of_pipeline(self, pipeline: str, topic: str) -> Pointers:
        return self._pointers.of_topic(topic).get(pipeline, {})

    def _begin(self, pipeline: str, generation: Generation) -> None:
        if generation.number and len(self._of_pipeline(pipeline, generation.topic)) < generation.partitions:
            self._pointers.begin(pipeline, generation)


def _reading(target: TableTarget, generation: Generation | None) -> TableTarget:
    if generation is None:
        return target
    return replace(target, mapping=replace(target.mapping, topic=generation.topic))


def follow_generations(
    settings: Settings, work: UpsertWork, stop: threading.Event, run_engine: RunEngine, *, look: float = LOOK_SECONDS
) -> None:
    """Runs the engine on generation after generation, until `stop` is set or it ends on the last one by itself."""
    database = open_database(settings.database.require_url(), "inorder pipeline (generations)")
    with closing(GenerationGate(database)) as gate:
        follow(partial(gate.reading, work), work.name, stop, run_engine, look=look)


def follow(
    reading_now: Callable[[], SliceWork],
    name: str,
    stop: threading.Event,
    run_engine: RunEngine,
    *,
    look: float = LOOK_SECONDS,
) -> None:
    """Runs the engine on what is to be read now, and anew when that is something else."""
    reading: SliceWork | None = None
    while (wanted := _asked(reading_now, name, stop)) is not None and wanted != reading:
        reading = wanted
        log.info("pipeline.generation pipeline=%s topics=%s", name, ",".join(reading.topics))
        with until_changed(partial(_has_changed, reading_now, reading), stop, look) as over:
            run_engine(reading, over)


def _asked(reading_now: Callable[[], SliceWork], name: str, stop: threading.Event) -> SliceWork | None:
    """What to read, as soon as the database tells; None if it is to stop."""
    while not stop.is_set():
        try:
            return reading_now()
        except TransientError as error:
            log.warning("pipeline.generation_not_asked pipeline=%s reason=%s", name, error)
            stop.wait(RETRY_SECONDS)
    return None


def _has_changed(reading_now: Callable[[], SliceWork], reading: SliceWork) -> bool:
    try:
        return reading_now() != reading
    except TransientError as error:
        log.debug("pipeline.generation_not_asked %s", error)  # the engine meets the same trouble, and tells it
        return False
