"""Whatever happens to a journal, and however far replication is behind: every read equals the model at its mark.

The model is the journal in a few lines: a list of numbers, where it ends, and what is deleted. Actions come at random,
among them those of writers that do not keep the rules: numbers that were taken already, deletes of what is not there,
the same record twice. Between them the store catches up by random steps, its offset with it or later, and the log loses
what is replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.codec import RecordSender, append_record
from inorder.journal.stores.ports import JournalHead
from inorder.model.errors import JournalChangedError
from inorder.model.journal import Key, RecordMetadata
from inorder.model.message import Limits
from inorder.testing.memory_journal import MemoryJournalStore
from tests.selection import examples
from tests.unit.journal.world import KEY, NOON, World, event


@dataclass(frozen=True)
class Model:
    """The model of a journal, without a store."""

    seq_nrs: tuple[int, ...] = ()
    end: int = 0
    bound: int = 0
    """Set by deletes while there is no event."""

    @property
    def pointer(self) -> int | None:
        return self.end or self.bound or None

    def append(self, seq_nrs: list[int]) -> Model:
        """An append counts as a whole or not at all."""
        if seq_nrs[0] <= self.end:
            return self
        return replace(self, seq_nrs=(*self.seq_nrs, *seq_nrs), end=seq_nrs[-1])

    def delete(self, to: int) -> Model:
        if not self.end:
            return replace(self, bound=max(self.bound, to))
        return replace(self, seq_nrs=tuple(seq_nr for seq_nr in self.seq_nrs if seq_nr > to))


@dataclass
class Run:
    """A world and the model of its journal, after each record of the log."""

    world: World
    models: list[Model]

    @property
    def model(self) -> Model:
        return self.models[-1]

    def note(self, model: Model) -> None:
        """The model after what was just written; marks change nothing."""
        self.models += [self.model] * (self.world.log.end(KEY.topic, 0) - len(self.models)) + [model]

    def append(self, first: int, count: int, step: int) -> None:
        seq_nrs = [max(1, self.model.end + first) + step * n for n in range(count)]
        self.world.append(*seq_nrs)
        self.note(self.model.append(seq_nrs))

    def twice(self, count: int) -> None:
        """An append whose first acknowledgement was lost."""
        seq_nrs = list(range(self.model.end + 1, self.model.end + 1 + count))
        record = append_record(KEY, [event(n) for n in seq_nrs], NOON, RecordSender(), RecordMetadata(), {}, Limits())
        for _ in range(2):
            self.world.log.send(record)
        self.note(self.model.append(seq_nrs))

    def delete(self, to: int) -> None:
        self.world.delete(to)
        self.note(self.model.delete(to))

    def delete_as_told(self, to: int) -> None:
        self.world.journal.delete(to)
        end = self.model.pointer
        self.note(self.model if end is None else self.model.delete(min(to, end)))

    def purge(self) -> None:
        self.world.journal.purge()
        self.note(Model())

    def noise(self) -> None:
        self.world.other("another").append([event(self.world.log.end(KEY.topic, 0) + 1)])
        self.note(self.model)

    def replicate(self, behind: int, moves_offset: bool) -> None:
        end = max(0, self.world.log.end(KEY.topic, 0) - behind)
        self.world.replicator.replicate(KEY.topic, 0, end, moves_offset=moves_offset)

    def forget(self) -> None:
        replicated = self.world.store.offset(KEY.topic, 0)
        if replicated is not None:
            self.world.log.forget(KEY.topic, 0, replicated + 1)

    def check(self, from_seq_nr: int) -> None:
        expected = [seq_nr for seq_nr in self.model.seq_nrs if seq_nr >= from_seq_nr]
        assert self.world.read(from_seq_nr) == expected
        assert self.world.journal.pointer() == self.model.pointer


Step = Callable[[Run], None]

counts = st.integers(1, 4)
appends: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda count: lambda run: run.append(1, count, 1), counts),
    st.builds(lambda first, *rest: lambda run: run.append(first, *rest), st.integers(-3, 5), counts, counts),
    st.builds(lambda count: lambda run: run.twice(count), counts),
)
removals: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda to: lambda run: run.delete(to), st.integers(1, 20)),
    st.builds(lambda to: lambda run: run.delete_as_told(to), st.integers(1, 20)),
    st.just(lambda run: run.purge()),
)
noise: st.SearchStrategy[Step] = st.just(lambda run: run.noise())
steps_of_the_offset: st.SearchStrategy[Step] = st.builds(
    lambda behind, moves: lambda run: run.replicate(behind, moves), st.integers(0, 6), st.booleans()
)
catching_up: st.SearchStrategy[Step] = st.builds(
    lambda behind: lambda run: run.replicate(behind, True), st.integers(0, 3)
)
forgetting: st.SearchStrategy[Step] = st.just(lambda run: run.forget())

worlds = st.builds(
    World,
    cached=st.booleans(),
    doubled=st.booleans(),
    keeps_rows=st.booleans(),
    segment_size=st.sampled_from([2, 3, 10_000]),
    buffer_bytes=st.sampled_from([0, 3_000, 1_000_000]),
)


@examples(250)
@given(
    worlds,
    st.lists(st.one_of(appends, appends, removals, noise, steps_of_the_offset, forgetting), min_size=8, max_size=30),
    st.integers(1, 4),
)
def test_every_read_equals_the_model_at_its_mark(world: World, steps: list[Step], patience: int) -> None:
    run = Run(world, [Model()])
    for number, step in enumerate(steps):
        step(run)
        if number % patience == 0:
            run.check(1 + number % 5)
    run.check(1)
    run.replicate(0, moves_offset=True)
    run.check(1)


class RacingStore(MemoryJournalStore):
    """A store that runs a hook before each call."""

    def __init__(self) -> None:
        super().__init__()
        self.happenings: Iterator[object] = iter(())
        self._is_busy = False

    def pointer(self, key: Key) -> JournalHead | None:
        self.happen()
        return super().pointer(key)

    def offset(self, topic: str, partition: int) -> int | None:
        self.happen()
        return super().offset(topic, partition)

    def happen(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            next(self.happenings, None)
            self._is_busy = False


@examples(250)
@given(
    st.builds(
        World,
        cached=st.booleans(),
        store=st.builds(RacingStore),
        buffer_bytes=st.sampled_from([0, 1_000_000]),
    ),
    st.lists(st.one_of(appends, removals, catching_up), min_size=2, max_size=12),
    st.lists(st.one_of(appends, removals, catching_up, catching_up), min_size=3, max_size=12),
    st.integers(0, 4),
)
def test_a_read_shows_one_moment_of_the_journal_whatever_happens_meanwhile(
    world: World, before: list[Step], meanwhile: list[Step], slowness: int
) -> None:
    run = Run(world, [Model()])
    for step in before:
        step(run)
    at = len(run.models)
    happenings = (step(run) for step in meanwhile)
    assert isinstance(world.store, RacingStore)
    world.store.happenings = islice(happenings, slowness)
    shown: list[int] = []
    try:
        records = world.journal.read()
        world.store.happenings = happenings
        for record in records:
            shown.append(record.seq_nr)
            world.store.happen()
    except JournalChangedError:
        return
    run.note(run.model)
    assert tuple(shown) in {model.seq_nrs for model in run.models[at:]}
