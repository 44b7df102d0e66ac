"""No committed row is lost, read twice or overtaken by a row that could have seen it, however ids and commits cross."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.message import OutboxRow
from inorder.relay.drain import DrainClaims
from inorder.relay.marker import Marker
from inorder.relay.scan import (
    SWEEP_SECONDS,
    HolderWatch,
    Horizon,
    after_scan,
    is_sweep_only,
    is_watching,
    next_scan,
    observe,
)
from inorder.relay.stores.ports import LAST_ID, Page, Scan
from tests.fakes.outbox import MemoryOutbox
from tests.selection import examples


def row(id: int) -> OutboxRow:
    return OutboxRow(id, "t", b"k", b"v", (), None, None)


def page(*ids: int, limit: int = 10) -> Page:
    return Page([row(id) for id in ids], len(ids) >= limit, ids[-1] if ids else 0)


def test_the_first_scan_reads_from_the_head() -> None:
    assert next_scan(Horizon()) == Scan(above=0, walk=True)


def test_ids_without_a_hole_need_no_watch() -> None:
    horizon = after_scan(Horizon(), Scan(0), page(1, 2, 3))
    assert horizon == Horizon(floor=3, last=3, missing=())
    assert not is_watching(horizon)
    assert next_scan(horizon) == Scan(above=3)


def test_a_missing_id_is_asked_for_in_the_snapshot_that_reads_on() -> None:
    horizon = after_scan(Horizon(), Scan(0), page(1, 3))
    assert next_scan(horizon) == Scan(above=3, probes=(2,))


def test_a_missing_id_is_given_up_only_one_scan_after_its_holders_ended() -> None:
    horizon = observe(after_scan(Horizon(), Scan(0), page(1, 3)), frozenset({"7/1", "8/4"}))
    assert horizon.watch == HolderWatch(3, frozenset({"7/1", "8/4"}))
    horizon = observe(after_scan(horizon, next_scan(horizon), page()), frozenset({"8/4", "9/1"}))
    assert horizon.missing == (2,)
    horizon = observe(after_scan(horizon, next_scan(horizon), page()), frozenset({"9/1"}))
    assert next_scan(horizon).probes == (2,), "the scan after the holders ended still asks"
    horizon = after_scan(horizon, next_scan(horizon), page())
    assert horizon.floor == 3
    assert next_scan(horizon) == Scan(above=3)


def test_a_cut_scan_does_not_raise_the_floor_over_rows_it_left_unread() -> None:
    horizon = Horizon(floor=0, last=100, missing=None, settled=100)
    horizon = after_scan(horizon, Scan(0), page(10, 20, limit=2))
    assert horizon.floor == 20


def test_too_many_missing_ids_turn_scans_into_walks_from_the_floor() -> None:
    horizon = after_scan(Horizon(floor=5, last=5, missing=()), Scan(5), page(1000), missing_limit=3)
    assert horizon.missing is None
    assert next_scan(horizon) == Scan(above=5, walk=True)


def test_a_database_that_names_no_holders_is_walked_from_the_head_for_ever() -> None:
    horizon = after_scan(Horizon(), Scan(0), page(10), missing_limit=3)
    assert observe(horizon, None) == horizon
    assert next_scan(horizon) == Scan(above=0, walk=True)


def test_rows_of_other_shards_are_not_missing() -> None:
    horizon = after_scan(Horizon(last=5, floor=5, missing=()), Scan(5), Page([row(6), row(9)], top=9, others=(7, 8)))
    assert horizon == Horizon(floor=9, last=9, missing=())


def test_a_walk_that_cannot_name_all_others_does_not_guess_what_is_missing() -> None:
    found = Page([row(6), row(90)], top=90, others=(7, 8), others_to=45)
    horizon = after_scan(Horizon(floor=5, last=5), Scan(5, walk=True), found)
    assert horizon.missing is None
    assert horizon.last == 90


def test_a_sweep_leaves_what_is_above_the_last_id_to_the_scan_that_reads_on() -> None:
    horizon = Horizon(floor=3, last=5, missing=(4,))
    swept = after_scan(horizon, next_scan(horizon, sweep=True), page(4, 6, 7))
    assert swept == Horizon(floor=5, last=5, missing=())


def test_ids_that_begin_again_below_the_floor_start_everything_anew() -> None:
    horizon = Horizon(floor=500, last=500, missing=())
    assert after_scan(horizon, next_scan(horizon, sweep=True), page(1, 2)) == Horizon()


def test_rows_in_hand_below_the_floor_are_no_new_beginning() -> None:
    horizon = Horizon(floor=500, last=500, missing=())
    swept = after_scan(horizon, Scan(0), page(499, 500), in_hand=frozenset({499, 500}))
    assert swept.floor == 500


@dataclass
class Transaction:
    """An open transaction of a writer, with what it could see when it began."""

    name: str
    saw: frozenset[int]
    ids: list[int] = field(default_factory=list)


@dataclass
class Reader:
    """What the relay of one shard knows and holds."""

    horizon: Horizon = field(default_factory=Horizon)
    in_hand: set[int] = field(default_factory=set)


class Table:
    """Writers that commit in any order, and the relays of its shards, which scan, publish and purge with delays."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.sequence = 0
        self.names = 0
        self.open: list[Transaction] = []
        self.visible: set[int] = set()
        self.committed: set[int] = set()
        self.causes: dict[int, frozenset[int]] = {}
        self.readers = [Reader() for _ in range(shards)]
        self.published: list[int] = []

    def insert(self, who: int, count: int) -> None:
        """An open transaction inserts, or a new one begins and does."""
        if who >= len(self.open):
            self.names += 1
            self.open.append(Transaction(str(self.names), frozenset(self.committed)))
        transaction = self.open[min(who, len(self.open) - 1)]
        for _ in range(count):
            self.sequence += 1
            transaction.ids.append(self.sequence)
            self.causes[self.sequence] = transaction.saw

    def end(self, who: int, commit: bool) -> None:
        if not self.open:
            return
        transaction = self.open.pop(who % len(self.open))
        if commit:
            self.visible.update(transaction.ids)
            self.committed.update(transaction.ids)

    def scan(self, who: int, limit: int, missing_limit: int, sweep: bool) -> None:
        shard = who % self.shards
        reader = self.readers[shard]
        held = frozenset(reader.in_hand)
        scan = next_scan(reader.horizon, sweep=sweep)
        page = self.page(shard, scan, limit + len(held))
        last = reader.horizon.last if is_sweep_only(reader.horizon, scan) else LAST_ID
        fresh = [row.id for row in page.rows if row.id not in held and row.id <= last]
        reader.horizon = after_scan(reader.horizon, scan, page, in_hand=held, missing_limit=missing_limit)
        reader.in_hand.update(fresh)
        self.published.extend(fresh)
        if is_watching(reader.horizon):
            reader.horizon = observe(reader.horizon, frozenset(each.name for each in self.open))

    def page(self, shard: int, scan: Scan, limit: int) -> Page:
        """What the port promises; a walk names others only a few ids far, so that both ways are gone."""
        above = sorted(id for id in self.visible if id > scan.above)
        if scan.walk:
            mine = [id for id in above if id % self.shards == shard][:limit]
            top = mine[-1] if len(mine) == limit else max(self.visible, default=0)
            others_to = LAST_ID if self.shards == 1 else scan.above + 4
            others = [id for id in above if id % self.shards != shard and id <= others_to]
            return Page([row(id) for id in mine], len(mine) == limit, top, others, others_to)
        met = sorted({*above[:limit], *(self.visible & set(scan.probes))})
        others = [id for id in met if id % self.shards != shard]
        mine = [id for id in met if id % self.shards == shard]
        return Page([row(id) for id in mine], len(above) >= limit, met[-1] if met else 0, others)

    def purge(self, every: int) -> None:
        for reader in self.readers:
            gone = set(sorted(reader.in_hand)[::every])
            self.visible -= gone
            reader.in_hand -= gone

    def finish(self) -> None:
        """Everybody commits, and the relay goes on without a sweep until nothing is left."""
        while self.open:
            self.end(0, commit=True)
        for _ in range(len(self.committed) + 6):
            for shard in range(self.shards):
                self.scan(shard, 6, 50, sweep=False)
            self.purge(1)

    def check(self) -> None:
        position = {id: place for place, id in enumerate(self.published)}
        assert len(position) == len(self.published), "a row was published twice"
        assert set(position) == self.committed, "a committed row was never published"
        for id, place in position.items():
            causes = [cause for cause in self.causes[id] if cause % self.shards == id % self.shards]
            late = [cause for cause in causes if position[cause] > place]
            assert not late, f"{id} was published before {late}, which it could have seen"


who = st.integers(0, 3)
inserts = st.tuples(st.just("insert"), who, st.integers(1, 3))
ends = st.tuples(st.just("end"), who, st.sampled_from([True, True, False]))
scans = st.tuples(st.just("scan"), who, st.integers(1, 6), st.sampled_from([0, 2, 50]), st.just(False))
sweeps = st.tuples(st.just("scan"), who, st.integers(1, 6), st.just(50), st.just(True))
purges = st.tuples(st.just("purge"), st.integers(1, 3))
steps_of_all = st.lists(
    st.one_of(inserts, inserts, ends, ends, scans, scans, scans, scans, sweeps, purges), max_size=40
)


@pytest.mark.parametrize("shards", [1, 2, 3])
@examples(400)
@given(steps=steps_of_all)
def test_no_row_is_lost_doubled_or_overtaken_however_commits_cross(shards: int, steps: list[tuple[Any, ...]]) -> None:
    table = Table(shards)
    for name, *arguments in steps:
        getattr(table, name)(*arguments)
    table.finish()
    table.check()


def test_a_sweep_that_finds_nothing_is_followed_by_a_scan_that_reads_on() -> None:
    """A sleeping relay reads once when it is notified: that read must not be a sweep, which ignores newer rows."""
    outbox, now = MemoryOutbox(), [0.0]
    claims = DrainClaims(outbox, batch_size=10, clock=lambda: now[0])
    assert [claims.claim(frozenset).ids for _ in range(3)] == [[], [], []]
    for id in range(1, 4):
        now[0] += SWEEP_SECONDS
        outbox.insert("a", "t", b"k", b"v")
        outbox.end("a")
        assert claims.claim(frozenset).ids == [id]
        outbox.purge([id])


def test_a_sweep_finds_a_row_below_the_floor_and_none_that_is_in_hand() -> None:
    now, outbox = [0.0], MemoryOutbox()
    for _ in range(3):
        outbox.insert("t", "t", b"k", b"v")
    outbox.end("t")
    claims = DrainClaims(outbox, batch_size=10, clock=lambda: now[0])
    claims.begin(Marker())
    assert claims.claim(frozenset).ids == [1, 2, 3]
    outbox.purge([1, 2])
    outbox.put_back(row(1))
    assert claims.claim(lambda: frozenset({3})).ids == [], "only a sweep reads below the floor"
    now[0] += SWEEP_SECONDS
    assert claims.claim(lambda: frozenset({3})).ids == [1]
