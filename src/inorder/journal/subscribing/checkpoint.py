"""How far a subscription has come, as a small JSON value that an application keeps beside what it made of the events.

There are two kinds. On the log: everything up to an offset of each partition is done, and perhaps some events of the
record after it. In the store: a walk over its journals, one after another in the order of their ids, shows the events
above the offsets that are done, up to those that the store had when the walk began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from inorder.model.errors import ValidationError
from inorder.model.journal import EventRecord, SeqNr

Offsets = Mapping[int, int]
"""By partition, the last offset; a partition that is missing has none."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A record of the log whose events up to a number are done."""

    offset: int
    seq_nr: SeqNr


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over the store's journals: those before `id` are done, and of it the events up to `seq_nr`."""

    to: Offsets
    id: str = ""
    seq_nr: SeqNr = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a subscription goes on."""

    topic: str
    done: Offsets = field(default_factory=dict)
    begun: Mapping[int, Begun] = field(default_factory=dict)
    walk: Walk | None = None

    @property
    def is_beginning(self) -> bool:
        """Whether nothing was shown yet."""
        return not (self.done or self.begun or self.walk)

    def includes(self, record: EventRecord) -> bool:
        """Whether an event was shown before, by its place in the log."""
        place = record.partition_offset
        if place.offset <= self.done.get(place.partition, -1):
            return True
        begun = self.begun.get(place.partition)
        return begun is not None and place.offset == begun.offset and record.seq_nr <= begun.seq_nr

    def after_walk(self) -> Checkpoint:
        """The checkpoint when the walk is over: what it has covered is done."""
        to = {} if self.walk is None else self.walk.to
        done = {**self.done, **to}
        begun = {part: begun for part, begun in self.begun.items() if begun.offset > done.get(part, -1)}
        return Checkpoint(self.topic, done, begun)

    def to_json(self) -> dict[str, Any]:
        """As a value that any JSON column takes.

        >>> Checkpoint("journal", {0: 41}, {0: Begun(42, 3)}).to_json()
        {'topic': 'journal', 'done': {'0': 41}, 'begun': {'0': {'offset': 42, 'seq_nr': 3}}}
        """
        value: dict[str, Any] = {"topic": self.topic, "done": _numbers(self.done)}
        if self.begun:
            value["begun"] = {str(part): asdict(begun) for part, begun in self.begun.items()}
        if self.walk is not None:
            value["walk"] = {"to": _numbers(self.walk.to), "id": self.walk.id, "seq_nr": self.walk.seq_nr}
        return value

    @classmethod
    def from_json(cls, value: Any, topic: str) -> Checkpoint:
        """The checkpoint of a value, None for the beginning; `ValidationError` if it is none, or another topic's."""
        if value is None:
            return cls(topic)
        try:
            found = cls(str(value["topic"]), _offsets(value["done"]), _begun(value), _walk(value))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = "Give what a subscription gave as `checkpoint`, or None to begin at the first event."
            raise ValidationError("checkpoint", f"{_short(value)} is none ({error!r}).", hint=hint) from error
        if found.topic != topic:
            hint = f"Subscribe to {found.topic!r}, or begin with None."
            raise ValidationError("checkpoint", f"it is of topic {found.topic!r}, not of {topic!r}.", hint=hint)
        return found


class Progress:
    """A checkpoint on the log that moves on, record by record."""

    def __init__(self, at: Checkpoint) -> None:
        self._topic = at.topic
        self._done = dict(at.done)
        self._begun = dict(at.begun)

    def has(self, partition: int, offset: int) -> bool:
        """Whether all events of a record are done."""
        return offset <= self._done.get(partition, -1)

    def position(self) -> Checkpoint:
        """The checkpoint now."""
        return Checkpoint(self._topic, dict(self._done), dict(self._begun))

    def after(
        self, partition: int, offset: int, events: Sequence[EventRecord]
    ) -> Iterator[tuple[EventRecord, Checkpoint]]:
        """Each event of the next record with the checkpoint after it, those left out that are done."""
        begun = self._begun.pop(partition, None)
        if begun is not None and begun.offset == offset:
            events = [event for event in events if event.seq_nr > begun.seq_nr]
        if len(events) > 1:
            before, others = dict(self._done), self._begun
            for event in events[:-1]:
                position = Checkpoint(self._topic, before, {**others, partition: Begun(offset, event.seq_nr)})
                yield event, position
        self._done[partition] = offset
        if events:
            yield events[-1], self.position()


def _numbers(offsets: Offsets) -> dict[str, int]:
    # JSON knows no other keys than text.
    return {str(partition): offset for partition, offset in offsets.items()}


def _offsets(value: Any) -> dict[int, int]:
    return {int(partition): _whole(offset) for partition, offset in value.items()}


def _begun(value: Any) -> dict[int, Begun]:
    found = value.get("begun") or {}
    return {int(part): Begun(_whole(each["offset"]), _whole(each["seq_nr"])) for part, each in found.items()}


def _walk(value: Any) -> Walk | None:
    found = value.get("walk")
    return None if found is None else Walk(_offsets(found["to"]), str(found["id"]), _whole(found["seq_nr"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number from 0 on")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
