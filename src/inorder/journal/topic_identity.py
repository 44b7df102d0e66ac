"""Which topic of a name it is: places of journals are those of one topic, and another one of that name is refused.

Everything that is stored of a journal refers to places in its topic: the replicated offset, the head, the snapshots,
the checkpoints of subscriptions. A topic that is deleted and created again has the same name and gives the same offsets
to other records, so that acknowledged appends would count as replicated long ago. And where the number of partitions
changes, the records of one journal are in two partitions, whose order is not known.

**What is authoritative.** The row of the topic in `journal_topic`, a table that Kafka Journal does not have: Kafka's id
of the topic and the number of its partitions. The replicator writes it when it first sees a topic, and a store of an
earlier version gets it then, too. Only `inorder journal reset` changes it.

Who compares, and when; no append, read or slice waits for it:

| who                   | when                                                                                        |
|---|---|
| writers, readers      | before the first use of a topic, then every `FRESH_SECONDS` while it is used, beside the    |
|                       | calls; before the next use after a pause, and after an error that a new topic may have      |
| subscriptions         | at the start, after each failure, and when they look for partitions; the checkpoint has the |
|                       | id, too                                                                                     |
| the replicator        | at the start and every 2 s (`engines/survey.py`); with the offset of each slice, in the     |
|                       | statement that moves it (PostgreSQL)                                                        |

**What a reset does** (`plan_reset`). The rows of the former topic keep their content and get other places: partitions
from `FORMER` on, which no topic has. So no rule that compares places takes one for the other: heads include nothing of
the new topic, a purge in it finds all snapshots older, and a new subscription shows the events as those of the past.
The replicated offsets begin before the first record that the topic holds, so what was appended between the re-creation
and the reset is not lost either. What was appended to the former topic and not replicated is.

| what is found                                | offsets                       | rows of the topic               |
|---|---|---|
| another id, or fewer partitions              | before the first record       | all get places of the past      |
| the partition ends below the offset          | before the first record       | those of the partition do       |
| the partition begins above the offset        | before the first record       | stay                            |
| more partitions, everything is replicated    | stay                          | stay: records of a journal that |
|                                              |                               | moves come after its head       |
| more partitions, records are not replicated  | refused: the replicator goes on with the partitions that it knows |

Cassandra keeps the newest cell, by a time that is made from the offset. Records with lower offsets would lose against
those of the former topic, so there a reset that gives out offsets again is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from inorder.engines.slice_work import more_partitions, other_topic
from inorder.journal.replication.job import RESET
from inorder.journal.stores.ports import TopicIncarnation
from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    OtherTopicError,
    TransientError,
)
from inorder.model.partitioning import Extent

log = logging.getLogger("inorder.journal")

FRESH_SECONDS: Final = 5.0
TRUSTED_SECONDS: Final = 60.0
"""After so long without a use the next one waits for the answer."""
REFUSED_SECONDS: Final = 0.5
"""How long a refusal is repeated without another look."""


def find_difference(topic: str, recorded: TopicIncarnation | None, held: TopicIncarnation) -> OtherTopicError | None:
    """The error if the cluster holds another topic of that name than the store; None where one of them is unknown."""
    if recorded is None:
        return None
    if recorded.id is not None and held.id is not None and recorded.id != held.id:
        return other_topic(topic, recorded.id, held.id, RESET)
    if recorded.partitions != held.partitions:
        return more_partitions(topic, recorded.partitions, held.partitions, RESET)
    return None


LookUp = Callable[[str], TopicIncarnation | None]


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    recorded: TopicIncarnation | None
    held: TopicIncarnation
    accepted: TopicIncarnation | None
    """None if it is refused; kept, as every append asks for it."""


class TopicGuard:
    """Compares the topics that a client uses with those that its store knows. Safe for use by many threads.

    A store that does not answer is no reason to refuse an append; the next look compares.
    """

    def __init__(
        self,
        held: LookUp,
        recorded: LookUp,
        clock: Callable[[], float],
        on_changed: Callable[[str], None] = lambda topic: None,  # noqa: ARG005 - the signature
    ) -> None:
        """`on_changed` is called when a topic is another one than before, and accepted: caches must forget it."""
        self._held = held
        self._recorded = recorded
        self._clock = clock
        self._on_changed = on_changed
        self._seen: dict[str, _Seen] = {}
        self._accepted: dict[str, TopicIncarnation] = {}
        self._looking: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._is_closed = self._has_complained = False

    def require(self, topic: str) -> TopicIncarnation | None:
        """The topic that is used; None if it does not exist. Raises `OtherTopicError`."""
        seen = self._seen.get(topic)
        age = TRUSTED_SECONDS if seen is None else self._clock() - seen.at
        if seen is None or age >= FRESH_SECONDS:
            if age >= TRUSTED_SECONDS:
                seen = self._look(topic)
            else:
                self._look_later(topic)
        if seen is None:
            return None
        if seen.accepted is not None:
            return seen.accepted
        if self._clock() - seen.at >= REFUSED_SECONDS:
            seen = self._look(topic)
        error = None if seen is None else find_difference(topic, seen.recorded, seen.held)
        if error is not None:
            raise error
        return None if seen is None else seen.accepted

    def doubt(self, topic: str) -> None:
        """Looks again before the next use."""
        self._seen.pop(topic, None)

    def close(self) -> None:
        """Ends the looks that are under way; may be called twice."""
        with self._lock:
            self._is_closed = True
            looking = list(self._looking.values())
        for thread in looking:
            if thread is not threading.current_thread():
                thread.join()

    def _look(self, topic: str) -> _Seen | None:
        before = self._seen.get(topic)
        try:
            held = self._held(topic)
        except TransientError:
            if before is None:
                raise
            self._seen[topic] = replace(before, at=self._clock())
            return before
        if held is None:
            self._seen.pop(topic, None)
            return None
        recorded, accepted = self._recorded_or(topic, before), None
        if find_difference(topic, recorded, held) is None:
            accepted = held if recorded is None else replace(held, number=recorded.number)
            if self._accepted.get(topic, accepted) != accepted:
                self._on_changed(topic)  # before anything uses it
            self._accepted[topic] = accepted
        seen = self._seen[topic] = _Seen(self._clock(), recorded, held, accepted)
        return seen

    def _recorded_or(self, topic: str, before: _Seen | None) -> TopicIncarnation | None:
        try:
            return self._recorded(topic)
        except TransientError:
            return None if before is None else before.recorded
        except ConfigurationError as error:
            # Of a user who may not read a table that an earlier version did not have.
            if not self._has_complained:
                self._has_complained = True
                log.warning("journal.topic_unguarded", extra={"topic": topic, "error": str(error)})
            return None

    def _look_later(self, topic: str) -> None:
        with self._lock:
            if self._is_closed or topic in self._looking:
                return
            thread = threading.Thread(target=self._look_aside, args=(topic,), name=f"topic-{topic}", daemon=True)
            self._looking[topic] = thread
        thread.start()

    def _look_aside(self, topic: str) -> None:
        try:
            self._look(topic)
        except InorderError as error:
            log.debug("journal.topic_not_compared", extra={"topic": topic, "error": str(error)})
        finally:
            with self._lock:
                self._looking.pop(topic, None)


@dataclass(frozen=True, slots=True)
class JournalReset:
    """What a reset of one topic changes in the store."""

    topic: str
    before: TopicIncarnation
    after: TopicIncarnation
    seen: Mapping[int, int]
    """The replicated offsets before, by partition."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """The replicated offsets that are written; -1 is before the first record."""
    retires_all: bool = False
    """Whether all rows of the topic get places of the past, and offsets of other partitions are deleted."""
    retired: tuple[int, ...] = ()
    """The partitions whose rows do."""

    @property
    def gives_offsets_again(self) -> bool:
        """Whether records come that have lower offsets than what is stored."""
        return bool(self.seen) and (
            self.retires_all or bool(self.retired) or self.before.partitions != self.after.partitions
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "topic_id_before": self.before.id,
            "topic_id": self.after.id,
            "partitions_before": self.before.partitions,
            "partitions": self.after.partitions,
            "offsets_before": {str(number): offset for number, offset in sorted(self.seen.items())},
            "offsets": {str(number): offset for number, offset in sorted(self._offsets_after().items())},
        }

    def _offsets_after(self) -> dict[int, int]:
        kept = {} if self.retires_all else dict(self.seen)
        return {number: offset for number, offset in (kept | dict(self.offsets)).items() if offset >= 0}


def plan_reset(
    topic: str,
    recorded: TopicIncarnation | None,
    applied: Mapping[int, int],
    id: str | None,
    extents: Mapping[int, Extent],
    waiting: Mapping[int, int],
) -> JournalReset | None:
    """What a reset writes, None if everything fits.

    `applied` are the replicated offsets, `id` and `extents` what the cluster holds, `waiting` counts the records of
    each partition that are not replicated. Raises `TransientError` where some must be replicated first.
    """
    held = TopicIncarnation(id, len(extents))
    before = recorded or held
    is_other = before.id is not None and id is not None and before.id != id
    if is_other or held.partitions < before.partitions or not applied.keys() <= extents.keys():
        after = replace(held, number=before.number + 1)
        offsets = {number: extent.first - 1 for number, extent in extents.items()}
        return JournalReset(topic, before, after, dict(applied), offsets, retires_all=True)
    if held.partitions > before.partitions:
        _require_replicated(topic, {number: waiting.get(number, 0) for number in range(before.partitions)})
    truncated = tuple(number for number, offset in applied.items() if offset >= extents[number].end)
    lost = [number for number, offset in applied.items() if offset + 1 < extents[number].first]
    after = replace(held, id=id or before.id, number=before.number + bool(truncated))
    if after == before and not lost:
        return None
    offsets = {number: extents[number].first - 1 for number in (*truncated, *lost)}
    return JournalReset(topic, before, after, dict(applied), offsets, retired=truncated)


def _require_replicated(topic: str, waiting: Mapping[int, int]) -> None:
    for number, records in waiting.items():
        if records:
            raise TransientError(
                f"{records} offsets of {topic}[{number}] are not replicated: they come before what is in the new"
                " partitions.",
                hint="Stop all writers and let `inorder pipeline run replicate` go on until `inorder journal lag` shows"
                " 0 for the former partitions, then run this again.",
            )


class ResettableStore(Protocol):
    """The write side of a store, as a reset uses it."""

    def incarnation(self, topic: str) -> TopicIncarnation | None: ...

    def offsets(self, topic: str) -> Mapping[int, int]: ...

    def reset(self, plan: JournalReset) -> None:
        """Writes all of it, or nothing. Raises `TransientError` if an offset has moved meanwhile, `ConfigurationError`
        if records of the topic are in quarantine, or if the store cannot do it."""


def quarantine_error(topic: str) -> ConfigurationError:
    return ConfigurationError(
        f"Records of topic {topic!r} are in quarantine, and their places are those of the former topic.",
        hint=f"Release or discard them first: `inorder journal quarantine list --topic {topic}` prints them.",
    )


def moved_error(topic: str) -> TransientError:
    return TransientError(
        f"The replicated offsets of topic {topic!r} have moved meanwhile.",
        hint="Stop the job replicate, then run this again.",
    )
