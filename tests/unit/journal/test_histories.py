"""Several writers of one journal, its lives, records that are sent again, answers that are lost: all readers agree.

Each writer acts on what it has seen, however long ago. What counts is decided by the reference from the order of the
log alone. Every way to read the journal must show just that: from the store, from the head cache, from the log, from a
mixture of them, and after a wait for the store; however far replication is, and however often a record was sent.
(Subscriptions: `test_subscription_model.py`.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Action, Append, Condition, Delete, Purge
from inorder.journal.codec import RecordSender, action_of, action_record, append_record, events_of
from inorder.journal.life import JournalFold
from inorder.model.errors import SeqNrConflictError
from inorder.model.journal import PartitionOffset, RecordMetadata
from inorder.model.message import Limits, Record
from inorder.model.partitioning import Place
from tests.selection import examples
from tests.unit.journal.reference import Reference
from tests.unit.journal.world import KEY, NOON, World, event


@dataclass
class Writer:
    """What a writer has seen, and the record that it sent last."""

    seen: Condition = field(default_factory=Condition)
    sent: Record | None = None


@dataclass
class History:
    """A world, its writers, and the reference, which takes every record of the log."""

    world: World
    writers: list[Writer] = field(default_factory=lambda: [Writer(), Writer()])
    reference: Reference = field(default_factory=lambda: Reference(KEY))
    taken: int = 0
    ids: int = 0

    def follow(self) -> Reference:
        for record in self.world.log.records_between(KEY.topic, 0, self.taken, self.world.log.end(KEY.topic, 0)):
            self.taken = record.offset + 1
            action = action_of(record, KEY.topic, 0)
            if action is None or record.key != KEY.id.encode():
                continue
            events = events_of(action, record, KEY.topic, 0) if isinstance(action, Append) else []
            self.reference.take(record.offset, action, [each.seq_nr for each in events])
        return self.reference

    def look(self, number: int) -> None:
        marked = self.world.journals.moment(KEY)
        plan = marked.moment.plan
        name = JournalFold(KEY, 0).name(plan.life)
        self.writers[number].seen = Condition(name, plan.pointer or 0, marked.mark)

    def append(self, number: int, count: int) -> None:
        """An append on what the writer has seen."""
        writer = self.writers[number]
        first = (writer.seen.seq_nr or 0) + 1
        self.send(number, range(first, first + count), Condition(writer.seen.life, writer.seen.seq_nr))

    def append_anyway(self, number: int, distance: int, count: int) -> None:
        first = max(1, self.follow().end + distance)
        self.send(number, range(first, first + count), None)

    def send(self, number: int, numbers: range, condition: Condition | None) -> None:
        self.ids += 1
        events, id = [event(each) for each in numbers], f"append {self.ids}"
        about = (NOON, RecordSender(), RecordMetadata())
        record = append_record(KEY, events, *about, {}, Limits(), append_id=id, condition=condition)
        self.writers[number].sent = record
        self.world.log.send(record)

    def append_as_the_original(self, distance: int, count: int) -> None:
        first = max(1, self.follow().end + distance)
        events = [event(each) for each in range(first, first + count)]
        self.world.log.send(append_record(KEY, events, NOON, RecordSender(), RecordMetadata(), {}, Limits()))

    def act(self, number: int, action: Action) -> None:
        self.writers[number].sent = action_record(KEY, action, NOON, Limits())
        self.repeat(number)

    def repeat(self, number: int) -> None:
        """The last record once more: its answer was lost, or it comes late."""
        record = self.writers[number].sent
        if record is not None:
            self.world.log.send(record)

    def delete(self, number: int, to: int) -> None:
        seen = self.writers[number].seen
        self.act(number, Delete(to, condition=Condition(seen.life, seen=seen.seen)))

    def purge(self, number: int, with_end: bool) -> None:
        seen = self.writers[number].seen
        self.act(number, Purge(condition=seen if with_end else Condition(seen.life, seen=seen.seen)))

    def append_by_client(self, count: int, rival: bool) -> None:
        """A conditional append of the client itself, and perhaps another that comes first."""
        end = self.follow().pointer or 0
        events = [event(each) for each in range(end + 1, end + 1 + count)]
        if rival:
            self.world.log.on_sent = self.interfere
        self.ids += 1
        id = f"append {self.ids}"
        try:
            place: PartitionOffset | None = self.world.journal.append(events, expected_seq_nr=end, append_id=id)
        except SeqNrConflictError:
            place = None
        self.world.log.on_sent = lambda *_: None
        # What the client says is what the log says.
        counted = {offset for offset in self.follow().events.values() if self.id_at(offset) == id}
        assert counted == (set() if place is None else {place.offset})

    def id_at(self, offset: int) -> str | None:
        action = action_of(self.world.log.records_between(KEY.topic, 0, offset, offset + 1)[0], KEY.topic, 0)
        return action.id if isinstance(action, Append) else None

    def interfere(self, *_: object) -> None:
        self.world.log.on_sent = lambda *_: None
        self.repeat(0)
        self.append(1, 1)

    def replicate(self, behind: int, moves_offset: bool) -> None:
        end = max(0, self.world.log.end(KEY.topic, 0) - behind)
        self.world.replicator.replicate(KEY.topic, 0, end, moves_offset=moves_offset)

    def forget(self) -> None:
        replicated = self.world.store.offset(KEY.topic, 0)
        if replicated is not None:
            self.world.log.forget(KEY.topic, 0, replicated + 1)

    def check(self) -> None:
        expected = sorted(self.follow().events.items())
        assert [(each.seq_nr, each.offset) for each in self.world.journal.read()] == expected
        assert self.world.journal.pointer() == self.reference.pointer


Step = Callable[[History], None]
writers, counts, booleans = st.integers(0, 1), st.integers(1, 3), st.booleans()

WRITES: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda w, n: lambda it: it.append(w, n), writers, counts),
    st.builds(lambda w, d, n: lambda it: it.append_anyway(w, d, n), writers, st.integers(-1, 2), counts),
    st.builds(lambda d, n: lambda it: it.append_as_the_original(d, n), st.integers(-1, 2), counts),
    st.builds(lambda n, rival: lambda it: it.append_by_client(n, rival), counts, booleans),
    st.builds(lambda w: lambda it: it.repeat(w), writers),
)
LOOKS: st.SearchStrategy[Step] = st.builds(lambda w: lambda it: it.look(w), writers)
REMOVALS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda w, to: lambda it: it.delete(w, to), writers, st.integers(1, 9)),
    st.builds(lambda w, end: lambda it: it.purge(w, end), writers, booleans),
    st.just(lambda it: it.act(0, Purge())),
    st.builds(lambda to: lambda it: it.act(0, Delete(to)), st.integers(1, 9)),
    st.just(lambda it: it.world.journal.purge()),
)
REPLICATION: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda behind, moves: lambda it: it.replicate(behind, moves), st.integers(0, 6), booleans),
    st.just(lambda it: it.forget()),
)


class Waits:
    """Notices for readers that wait for the store: the replicator runs meanwhile, but perhaps not up to their mark."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.world: World | None = None

    @contextmanager
    def listen(self, place: Place, offset: int) -> Iterator[threading.Event]:
        assert self.world is not None
        end = max(0, offset + 1 - self.behind)
        self.world.replicator.replicate(*place, end, moves_offset=True)
        yield NoMore()

    def timed_out(self, place: Place, offset: int) -> None:
        """Nothing: the next reader waits, too."""


class NoMore(threading.Event):
    """No further notice comes, and no time passes until that is known."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - the signature
        return False


def make_world(waits: int | None, **options: Any) -> World:
    notices = None if waits is None else Waits(waits)
    world = World(notices=notices, **options)
    if notices is not None:
        notices.world = world
    return world


worlds = st.builds(
    make_world,
    waits=st.sampled_from([None, None, 0, 1, 3]),
    cached=st.booleans(),
    doubled=st.booleans(),
    keeps_rows=st.booleans(),
    segment_size=st.sampled_from([2, 10_000]),
    buffer_bytes=st.sampled_from([0, 3_000, 1_000_000]),
)


@examples(400)
@given(worlds, st.lists(st.one_of(WRITES, WRITES, LOOKS, LOOKS, REMOVALS, REPLICATION), min_size=5, max_size=30))
def test_every_reader_shows_what_counts(world: World, steps: list[Step]) -> None:
    history = History(world)
    for step in steps:
        step(history)
        history.check()
    history.replicate(0, moves_offset=True)
    history.check()
