"""`inorder pipeline clean`: removes tombstones that no record can be older than any more.

A delete leaves a tombstone with its version, so that no older record of the key creates the row again. An older record
can only come from a topic that still holds it (a pointer was lost, a database was restored), or from a dead letter that
is retried. Where neither exists, the tombstone is of no use.

**How it is known.** A tombstone does not say which partition its delete was in, and timestamps of records are whatever
their producers wrote. So a *mark* is taken: a time of the database's clock, and after it the ends of all partitions of
the topic, of all its generations. Whatever was deleted before that time was read from below these ends, and so was
everything older. Once retention has removed all records below the ends, the tombstones from before that time can go.
Then the next mark is taken. So a tombstone stays for one to two retention times.

**What is authoritative.** What the cluster holds now. The mark is one row of the pipeline; a lost one costs time only.

Invariants:

1. The time of a mark is read before its ends. A delete is read from Kafka before its transaction begins, and the time
   of its tombstone is not before that. Clocks may be set back by `MARGIN_SECONDS`.
2. A tombstone stays while the topic, in any generation, holds a record that was there when its mark was taken; also in
   another partition, because nothing says in which one the key was.
3. A tombstone stays while a dead letter of the pipeline has a lower version.

Failure table:

| what happens                                   | what follows                                                |
|------------------------------------------------|-------------------------------------------------------------|
| killed between two deletes                     | the mark is still there; the next run deletes the rest      |
| killed between the deletes and the next mark   | the next run deletes what is left of it and takes a mark    |
| two run at once                                | both delete the same; one of their marks stays              |
| a topic is deleted, or created again           | what it held is gone: records of the new one have higher    |
|                                                | versions, after `inorder pipeline reset`                    |
| a topic is compacted, or kept for ever         | its records stay, and so do the tombstones                  |
| a partition gets no record any more            | retention removes its last ones too                         |
| a record that was read before waits in a task  | its slice finds the pointer moved, and drops it             |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import orjson

from inorder.database.database import Database, InstallingDatabase, statements_of
from inorder.database.sql import quoted_table
from inorder.engines.slice_work import TopicSource
from inorder.model.partitioning import Place
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.reset import HeldTopic, held_topic
from inorder.pipeline.stores.dead_letters import dead_letter_tables
from inorder.topics.generations import TopicGenerations
from inorder.topics.stores.generations import SqlPointers

logger = logging.getLogger("inorder.pipeline")

MARGIN_SECONDS: Final = 3600
"""By how much the clock of the database may be set back without harm."""


Ends = Mapping[str, tuple[str | None, Mapping[int, int]]]
"""For each topic its Kafka id and the ends of its partitions, when a mark was taken."""


@dataclass(frozen=True, slots=True)
class CleanedTombstones:
    """What became of the tombstones of one table."""

    table: str
    tombstones: int
    """How many there are now."""
    removed: int
    """Or would be removed, in a dry run."""
    held_by: tuple[Place, ...]
    """Partitions with records from before the last mark; none if a new one was taken."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"held_by": [f"{topic}[{number}]" for topic, number in self.held_by]}


class _Mark(NamedTuple):
    before_at: Any
    """As the database has it: tombstones that were recorded before are meant."""
    ends: Ends


def ends_of(held: Mapping[str, HeldTopic | None]) -> Ends:
    """The ends to mark; a topic that does not exist holds nothing."""
    return {
        topic: (one.id, {number: extent.end for number, extent in one.extents.items()})
        for topic, one in held.items()
        if one is not None
    }


def still_held(marked: Ends, held: Mapping[str, HeldTopic | None]) -> list[Place]:
    """The partitions that hold records from before a mark."""
    found: list[Place] = []
    for topic, (id, ends) in marked.items():
        one = held.get(topic)
        if one is None or (None not in (id, one.id) and id != one.id):
            continue
        found += [(topic, number) for number, extent in one.extents.items() if extent.first < ends.get(number, 0)]
    return found


class TombstoneCleaning:
    """Removes useless tombstones of the tables of a job."""

    def __init__(
        self,
        mappings: Iterable[TableMapping],
        database: Database,
        generations: TopicGenerations,
        source: TopicSource,
        *,
        margin_seconds: int = MARGIN_SECONDS,
    ) -> None:
        self._mappings = list(mappings)
        tables = statements_of("inorder.pipeline", database.dialect, "table.sql").starting_with("create_tombstone")
        self._database = InstallingDatabase(database, [*dead_letter_tables(database.dialect), *tables])
        self._pointers = SqlPointers(database)
        self._generations = generations
        self._source = source
        self._margin = margin_seconds
        self._statements = statements_of("inorder.pipeline", database.dialect, "tombstones.sql")
        self._remove_useless = self._statements.render("remove_useless", key=quoted_table(database.dialect, "key"))

    def run(self, *, dry_run: bool = False) -> list[CleanedTombstones]:
        """Removes what can go, and takes the next mark; both for one table after the other."""
        return [self._clean(mapping, dry_run=dry_run) for mapping in self._mappings]

    def _clean(self, mapping: TableMapping, *, dry_run: bool) -> CleanedTombstones:
        pipeline = mapping.pipeline
        [(clock,)] = self._execute("clock", margin=self._margin)
        held = {topic: held_topic(self._source, topic) for topic in self._topics(mapping)}
        mark = self._read_mark(pipeline)
        places = [] if mark is None else still_held(mark.ends, held)
        removed = 0 if mark is None or places else self._remove(pipeline, mark.before_at, dry_run=dry_run)
        if not places and not dry_run:
            self._take_mark(pipeline, _Mark(clock, ends_of(held)), mark)
        if removed and not dry_run:
            logger.info("pipeline.tombstones_removed", extra={"pipeline": pipeline, "removed": removed})
        [(left,)] = self._execute("count", pipeline=pipeline)
        return CleanedTombstones(mapping.table, int(left), removed, tuple(sorted(places)))

    def _topics(self, mapping: TableMapping) -> list[str]:
        """All topics with records of the pipeline: of every generation, and those that its pointers name."""
        state = self._generations.read(mapping.topic)
        known = {mapping.topic, *(each.topic for each in self._pointers.of_pipeline(mapping.pipeline))}
        return sorted(known | {each.topic for each in (state.generations if state else ())})

    def _remove(self, pipeline: str, before_at: Any, *, dry_run: bool) -> int:
        letters = self._execute("oldest_letter", pipeline=pipeline)
        generation, offset = letters[0] if letters else (0, 0)
        bound = {
            "pipeline": pipeline,
            "before_at": before_at,
            "any_version": not letters,
            "generation": generation,
            "offset": offset,
        }
        if dry_run:
            return int(self._execute("count_useless", **bound)[0][0])
        removed = 0
        while count := self._database.execute(self._remove_useless, bound).count:
            removed += count
        return removed

    def _read_mark(self, pipeline: str) -> _Mark | None:
        found = self._execute("read_mark", pipeline=pipeline)
        if not found:
            return None
        before_at, text = found[0]
        ends = {
            topic: (one["id"], {int(number): end for number, end in one["ends"].items()})
            for topic, one in orjson.loads(text).items()
        }
        return _Mark(before_at, ends)

    def _take_mark(self, pipeline: str, mark: _Mark, seen: _Mark | None) -> None:
        written = {
            topic: {"id": id, "ends": {str(number): end for number, end in ends.items()}}
            for topic, (id, ends) in mark.ends.items()
        }
        bound = {"pipeline": pipeline, "before_at": mark.before_at, "ends": orjson.dumps(written).decode()}
        if seen is None:
            self._execute("first_mark", **bound)
        else:
            self._execute("replace_mark", **bound, seen=seen.before_at)

    def _execute(self, name: str, **bound: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(self._statements[name], bound).rows
