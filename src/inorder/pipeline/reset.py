"""`inorder pipeline reset`: accepts what has become of a topic, so that its records are applied again.

The job `upsert` stops a partition whose pointer no longer fits its topic. Only an operator can know whether that is
intended: a topic was re-created on purpose, a mapping names another one, retention was too short. The command writes
the pointers that say so.

**What is newer.** Versions are (generation, offset), and offsets of two incarnations of a topic do not compare. So the
new one gets the next generation of the pipeline: each of its records is newer than every row and tombstone that exists.
The same holds for a log that was truncated: offsets were given to other records a second time. Both begin with the
first record that the topic holds. Records that are applied a second time lead through older states to the same rows.

Where records were only deleted by retention, offsets go on. The pointer moves to the first record, and the generation
stays.

| what is found                                    | pointer             | generation                      |
|--------------------------------------------------|---------------------|---------------------------------|
| the topic has another id, or another name        | the first record    | the next                        |
| another topic was applied since                  | the first record    | the next                        |
| the partition ends below the pointer             | the first record    | the next                        |
| the partition begins above the pointer           | the first record    | the same                        |
| a closed generation was deleted or re-created    | its end: it is lost | the same; the next one is read  |
| all is to be applied again (`from_first`)        | the first record    | the next                        |
| a partition does not exist any more              | deleted             |                                 |
| nothing is wrong                                 | stays               | stays                           |

Only the generation that the job reads is reset. Of a topic that was switched, the job reads the first generation that
is not drained, else the last one; what lies in those before it is not applied a second time.

Dead letters of the former incarnation have coordinates that the new one uses again. They are kept under the topic's
name with `@` and their generation, where they can be listed and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inorder.database import sql
from inorder.database.database import Database
from inorder.database.schema_plan import install_missing
from inorder.engines.slice_work import Pointer, TopicSource
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.partitioning import Extent
from inorder.pipeline.job import INSTALL, TableTarget, UpsertWork, prepare_tables
from inorder.pipeline.stores.dead_letters import dead_letter_tables
from inorder.pipeline.stores.table import table_sql
from inorder.topics.gate import may_apply
from inorder.topics.generations import Generation, TopicGenerations, TopicState, own_topics
from inorder.topics.stores.generations import SqlPointers, StoredPointer

_STATEMENTS = sql.load("inorder.pipeline", "sql/reset.sql")


@dataclass(frozen=True, slots=True)
class PointerReset:
    """One pointer before and after."""

    topic: str
    partition: int
    before: Pointer | None
    after: Pointer | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "generation": None if self.after is None else self.after.generation,
            "next_offset": None if self.after is None else self.after.next_offset,
            "generation_before": None if self.before is None else self.before.generation,
            "next_offset_before": None if self.before is None else self.before.next_offset,
        }


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """What the cluster holds under the name of a topic."""

    id: str | None
    extents: Mapping[int, Extent]


def held_topic(source: TopicSource, topic: str) -> HeldTopic | None:
    """None if there is no such topic."""
    id, extents = source.topic_id(topic), source.extents(topic)
    return None if extents is None else HeldTopic(id, extents)


def plan_reset(
    pointers: Mapping[int, Pointer],
    held: HeldTopic | None,
    newest: int | None,
    ends: Sequence[int] | None = None,
    *,
    foreign: int | None = None,
    from_first: bool = False,
) -> dict[int, Pointer | None]:
    """The pointers to write, by partition; None for one to delete.

    `pointers` are those of the topic, `newest` is the highest generation of all pointers of the pipeline, None if it
    has none; `ends` are those of a closed generation; `foreign` is the highest generation of topics that the mapping
    named before. `from_first` begins all partitions again.
    """
    if ends is not None and (held is None or _is_recreated(pointers, held)):
        return {
            number: replace(pointers.get(number, Pointer(generation=newest or 0)), next_offset=end, end=end)
            for number, end in enumerate(ends)
        }
    if held is None:
        return {}
    following = 0 if newest is None else newest + 1
    if from_first or _is_recreated(pointers, held) or _is_renamed(pointers, newest, foreign):
        begun = {number: Pointer(extent.first, following, held.id) for number, extent in held.extents.items()}
        return {**dict.fromkeys(pointers), **(begun if ends is None else _up_to(ends, begun, held, following))}
    moved = {number: _moved(one, held.extents[number], following) for number, one in pointers.items()}
    return {number: one for number, one in moved.items() if one != pointers[number]}


def _is_recreated(pointers: Mapping[int, Pointer], held: HeldTopic) -> bool:
    ids = {one.topic_id for one in pointers.values()} - {None}
    return (held.id is not None and bool(ids - {held.id})) or not pointers.keys() <= held.extents.keys()


def _is_renamed(pointers: Mapping[int, Pointer], newest: int | None, foreign: int | None) -> bool:
    if not pointers:
        return newest is not None
    return foreign is not None and foreign > max(one.generation for one in pointers.values())


def _up_to(ends: Sequence[int], begun: Mapping[int, Pointer], held: HeldTopic, generation: int) -> dict[int, Pointer]:
    """The first pointers of a closed generation; a partition that does not reach its end has lost records for good."""
    lost = {
        number: Pointer(end, generation, held.id, end)
        for number, end in enumerate(ends)
        if number not in held.extents or held.extents[number].end < end
    }
    # Partitions that were added to a closed generation hold nothing of it.
    bounded = {number: replace(one, end=ends[number] if number < len(ends) else 0) for number, one in begun.items()}
    return {**bounded, **lost}


def _moved(pointer: Pointer, extent: Extent, following: int) -> Pointer:
    if pointer.next_offset < extent.first:
        return replace(pointer, next_offset=extent.first)
    if pointer.next_offset > extent.end:
        return replace(pointer, next_offset=extent.first, generation=following)
    return pointer


def _reading(topic: str, state: TopicState | None, rows: Sequence[StoredPointer]) -> Generation:
    """The generation that the job reads now."""
    if state is None:
        return Generation(0, topic, 0)
    return may_apply(
        state, lambda name: {each.partition: each.pointer.next_offset for each in rows if each.topic == name}
    )


class PipelineReset:
    """Resets the pointers of one table's topic."""

    def __init__(
        self, work: UpsertWork, database: Database, generations: TopicGenerations, source: TopicSource
    ) -> None:
        self._targets = {target.mapping.topic: target for target in work.targets}
        self._database = database
        self._pointers = SqlPointers(database)
        self._generations = generations
        self._source = source

    def run(self, topic: str, *, from_first: bool = False, dry_run: bool = False) -> list[PointerReset]:
        """Writes the pointers that fit the topic, all or none; returns those that changed.

        Raises `TransientError` where a pointer moved meanwhile.
        """
        target = self._target(topic)
        prepare_tables([target], self._database)
        pipeline = target.mapping.pipeline
        rows = self._pointers.of_pipeline(pipeline)
        state = self._generations.read(topic)
        reading = _reading(topic, state, rows)
        pointers = {each.partition: each.pointer for each in rows if each.topic == reading.topic}
        newest = max((each.pointer.generation for each in rows), default=None)
        own = own_topics(topic, state)
        foreign = max((each.pointer.generation for each in rows if each.topic not in own), default=None)
        held = held_topic(self._source, reading.topic)
        if held is None and reading.ends is None:
            raise ConfigurationError(
                f"There is no topic {reading.topic!r}.", hint="The job waits until it exists; nothing must be reset."
            )
        later = [] if state is None else [each.topic for each in state.generations[reading.number + 1 :]]
        planned = plan_reset(pointers, held, newest, reading.ends, foreign=foreign, from_first=from_first)
        applied = next((each.topic for each in rows if each.topic in later), None)
        if applied is not None and any(one and one.generation > (newest or 0) for one in planned.values()):
            raise ConfigurationError(
                f"{reading.topic!r} cannot become newer: {applied!r}, a later generation, was applied since.",
                hint="Rebuild the table beside this one: a second settings file, with another table.",
            )
        found = [
            PointerReset(reading.topic, number, pointers.get(number), planned[number]) for number in sorted(planned)
        ]
        if found and not dry_run:
            self._write(target, found)
        return found

    def _target(self, topic: str) -> TableTarget:
        if topic not in self._targets:
            raise ConfigurationError(
                f"No table of the job upsert reads topic {topic!r}.",
                hint=f"The settings name {', '.join(map(repr, sorted(self._targets)))}.",
            )
        return self._targets[topic]

    def _write(self, target: TableTarget, resets: Sequence[PointerReset]) -> None:
        dialect, pipeline = self._database.dialect, target.mapping.pipeline
        begin = table_sql(dialect, target.mapping)["begin_pointer"]
        install_missing(self._database, dead_letter_tables(dialect), INSTALL)
        with self._database.transaction() as transaction:
            for each in resets:
                place = {"pipeline": pipeline, "topic": each.topic, "partition": each.partition}
                before, after = each.before, each.after
                if before is None and after is not None:
                    values = {
                        "generation": after.generation,
                        "next_offset": after.next_offset,
                        "topic_id": after.topic_id,
                    }
                    transaction.execute(begin, place | values)
                if before is None:
                    continue
                seen = place | {"seen_offset": before.next_offset, "seen_generation": before.generation}
                if after is None:
                    changed = transaction.execute(_STATEMENTS["delete_pointer"], seen)
                else:
                    values = {"generation": after.generation, "next_offset": after.next_offset}
                    other = {"topic_id": after.topic_id, "end_offset": after.end}
                    changed = transaction.execute(_STATEMENTS["set_pointer"], seen | values | other)
                if changed.count != 1:
                    raise TransientError(
                        f"The pointer of {each.topic}[{each.partition}] moved meanwhile.",
                        hint="Stop the job upsert, then run this again.",
                    )
                if after is None or after.generation != before.generation:
                    kept = place | {"kept_as": f"{each.topic}@{before.generation}"}
                    transaction.execute(_STATEMENTS["keep_letters"], kept)
                    transaction.execute(_STATEMENTS["keep_actions"], kept)
