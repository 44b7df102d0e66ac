"""The job `migrate`: later generations of a topic, copied into one Kafka topic for readers that know no generations.

A generation is copied once the previous one is copied in every partition: the gate of the pipeline (`topics/gate.py`),
with the offsets of the copy as pointers. The current generation is copied up to its end, or continuously.

The offsets of a copy say what of one topic is in another. If either is deleted and created again under its name, they
say nothing any more. So the database has Kafka's ids of both from the first run on, and another one is refused: at the
start, in a running copy within seconds, and before a copy reports that it is done. `reset` accepts it, forgets the
offsets, and copies what the source holds from its first record on. Copies of topics that are the same continue.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.progress import NULL_LISTENER, CompositeListener, Listener, RunTotals
from inorder.engines.running import SparkEngine, follow
from inorder.engines.slice_work import SliceOutcome, SliceWork
from inorder.kafka.admin import forget_group
from inorder.model.errors import (
    ConfigurationError,
    GuaranteeError,
    InorderError,
    MassRefusalError,
    OtherTopicError,
    TransientError,
)
from inorder.model.message import RESERVED, is_reserved
from inorder.model.partitioning import Partitioner, Place
from inorder.topics.gate import BoundedWork, is_drained, may_apply
from inorder.topics.generations import CopiedTopics, Generation, Pointers, Target, TopicState
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from inorder.topics.stores.kafka_copy import CopyWork, other_copy
from inorder.topics.stores.kafka_topics import KafkaTopicCluster


def migrate_here(
    migration: Migration, *, once: bool = True, stop: threading.Event | None = None, reset: bool = False
) -> dict[str, int]:
    """Copies in this process; returns records by generation's topic. What was copied before is not copied again."""
    copied = _Copied()
    source = migration.source

    def run_engine(work: SliceWork, changed: threading.Event) -> None:
        InProcess(work, source).run(changed, once, copied)

    migration.prepare(reset=reset)
    follow(migration.reading, migration.topic, stop or threading.Event(), run_engine)
    migration.require_topics()
    return {each.topic: copied.records[each.topic] for each in migration.sources()}


def run_migrate(
    migration: Migration, engine: SparkEngine, *, once: bool, stop: threading.Event, listener: Listener = NULL_LISTENER
) -> dict[str, Any]:
    """Copies on Spark until `stop` is set, or once; returns the totals in records."""
    progress = RunTotals()
    migration.prepare()
    drive = partial(follow, migration.reading, migration.topic, stop)
    heard = CompositeListener(progress, listener)
    engine.run(migration.reading(), once=once, stop=stop, listener=heard, drive=drive)
    migration.require_topics()
    return dict(progress.totals())


class Migration:
    """What is to be copied where, at any moment. Used by one thread at a time, or two that take turns."""

    def __init__(
        self,
        topic: str,
        to: str | None,
        *,
        generations: SqlTopicGenerations,
        pointers: SqlPointers,
        properties: Mapping[str, Any],
        partitioner: Partitioner,
    ) -> None:
        """`pointers` are those of the pipelines; `properties` are those of the Kafka client."""
        if to is not None and is_reserved(to):
            raise ConfigurationError(f"{to!r} {RESERVED}.", hint="Copy into another topic.")
        self.topic = topic
        self.destination = to or topic
        self.source = KafkaSource(dict(properties))
        self._generations = generations
        self._pipeline_pointers = pointers
        self._properties = dict(properties)
        self._partitioner = partitioner
        self._copied: dict[str, Pointers] = {}
        self._ids: dict[str, CopiedTopics] = {}

    def prepare(self, *, reset: bool = False) -> None:
        """Creates the destination where it is missing; raises where copying into it would harm a reader.

        With `reset`, sources or a destination that were re-created are accepted.
        """
        state = self._state()
        sources = sources_of(state, self.destination)
        self._require_drained(state)
        cluster = KafkaTopicCluster(self._properties)
        if cluster.partitions(self.destination) is None:
            if self._generations.read_copies(self.destination) and not reset:
                raise OtherTopicError(
                    f"Topic {self.destination!r} was deleted in the middle of a copy, and what was copied with it.",
                    hint=f"Stop the copy and run `{self._reset_command}`: everything is then copied again.",
                )
            cluster.make(Target(self.destination, sources[-1].partitions), like=sources[-1].topic)
        self.require_topics(reset=reset)

    def require_topics(self, *, reset: bool = False) -> None:
        """Raises `OtherTopicError` for a source or a destination that was re-created since its copy began."""
        for generation in self.sources():
            self._ids.pop(generation.topic, None)
            self._identify(generation.topic, reset=reset)

    def sources(self) -> Sequence[Generation]:
        """The generations to copy."""
        return sources_of(self._state(), self.destination)

    def reading(self) -> SliceWork:
        """The generation that may be copied now, up to its ends."""
        state = self._state()
        sources = {each.topic: each for each in sources_of(state, self.destination)}
        wanted = replace(state, generations=tuple(sources.values()))
        generation = may_apply(wanted, lambda topic: self._pointers(sources[topic]))
        work = self._work(generation.topic)
        return work if generation.ends is None else BoundedWork(work, ((generation.topic, generation.ends),))

    def behind(self) -> dict[Place, int]:
        """How many offsets of each partition wait to be copied; an upper bound, as markers of transactions count."""
        found: dict[Place, int] = {}
        for generation in self.sources():
            copied, extents = self._pointers(generation), self.source.extents(generation.topic) or {}
            for number, extent in extents.items():
                end = extent.end if generation.ends is None else min(extent.end, generation.ends[number])
                found[generation.topic, number] = max(0, end - max(copied.get(number, 0), extent.first))
        return found

    @property
    def _reset_command(self) -> str:
        to = "" if self.destination == self.topic else f" --to {self.destination}"
        return f"inorder topics migrate {self.topic}{to} --reset"

    def _work(self, topic: str) -> CopyWork:
        properties, ids = tuple(sorted(self._properties.items())), self._identify(topic)
        return CopyWork(properties, topic, self.destination, self._partitioner, ids, self._reset_command)

    def _identify(self, topic: str, *, reset: bool = False) -> CopiedTopics:
        """The topics that the offsets of a copy belong to, recorded at its first run."""
        known = self._ids.get(topic)
        if known is not None:
            return known
        held = CopiedTopics(self.source.topic_id(topic), self.source.topic_id(self.destination))
        ids = self._generations.adopt_copy(topic, self.destination, held)
        command = self._reset_command
        error = other_copy(topic, ids.source_id, held.source_id, command) or other_copy(
            self.destination, ids.destination_id, held.destination_id, command
        )
        if error is not None and not reset:
            raise error
        if error is not None:
            # The offsets first: if this is interrupted, the ids still differ, and the next run refuses again.
            forget_group(self._properties, CopyWork((), topic, self.destination).name)
            self._generations.accept_copy(topic, self.destination, held)
            self._copied.pop(topic, None)
            ids = held
        self._ids[topic] = ids
        return ids

    def _pointers(self, generation: Generation) -> Pointers:
        """How far a generation is copied; one that is copied to its ends stays so, and is not read again."""
        topic = generation.topic
        if not is_drained(generation, self._copied.get(topic, {})):
            with closing(self._work(topic).open()) as worker:
                found = worker.pointers(topic)
            self._copied[topic] = {number: pointer.next_offset for number, pointer in found.items()}
        return self._copied[topic]

    def _state(self) -> TopicState:
        state = self._generations.read(self.topic)
        if state is None:
            raise ConfigurationError(
                f"Topic {self.topic!r} has only one generation.", hint="`inorder topics failover` adds the next one."
            )
        return state

    def _require_drained(self, state: TopicState) -> None:
        """A pipeline that reads the destination as a generation must have read it all: it would read the copies."""
        closed = next((each for each in state.generations if each.topic == self.destination), None)
        if closed is None:
            return
        found = self._pipeline_pointers.of_topic(self.destination)
        late = [pipeline for pipeline, applied in found.items() if not is_drained(closed, applied)]
        if late:
            place = f"{self.destination!r} as generation {closed.number} of {state.topic!r}"
            raise TransientError(
                f"The pipeline {late[0]!r} still reads {place}.",
                hint="Copy when it is done (`inorder topics status`), or into another topic with --to.",
            )
        # A task that still reads the destination, of a driver that does not know of the switch, stops at the ends.
        self._pipeline_pointers.close_generation(closed)


class _Copied:
    """Counts records by topic."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()

    def applied(self, outcome: SliceOutcome) -> None:
        self.records[outcome.topic] += outcome.applied

    def spent(self, phases: Mapping[str, float]) -> None:
        """Not counted."""

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """The copy ends with it."""

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not counted."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        """No table refuses a copy."""


def sources_of(state: TopicState, destination: str) -> Sequence[Generation]:
    """The generations to copy: all, or those behind the destination if it is one itself."""
    numbers = [generation.number for generation in state.generations if generation.topic == destination]
    if numbers and numbers[0] == state.current.number:
        raise ConfigurationError(
            f"{destination!r} is the current generation of topic {state.topic!r}; publishers write to it.",
            hint="Copy into the topic's first generation, which is the default, or name another topic with --to.",
        )
    return [generation for generation in state.generations if not numbers or generation.number > numbers[0]]
