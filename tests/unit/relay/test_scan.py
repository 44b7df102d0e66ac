"""No committed row is lost, read twice or overtaken by a row that could have seen it, however ids and commits cross."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inorder.ports.outbox_store import Scan
from inorder.relay.scan import Horizon, Watch, after_scan, is_watching, next_scan, observe


def test_the_first_scan_reads_from_the_head() -> None:
    assert next_scan(Horizon()) == Scan(above=0)


def test_ids_without_a_hole_need_no_watch() -> None:
    horizon = after_scan(Horizon(), Scan(0), [1, 2, 3], limit=10)
    assert horizon == Horizon(floor=3, last=3, missing=())
    assert not is_watching(horizon)
    assert next_scan(horizon) == Scan(above=3)


def test_a_missing_id_is_asked_for_in_the_snapshot_that_reads_on() -> None:
    horizon = after_scan(Horizon(), Scan(0), [1, 3], limit=10)
    assert next_scan(horizon) == Scan(above=3, probes=(2,))


def test_a_missing_id_is_given_up_only_one_scan_after_its_holders_ended() -> None:
    horizon = observe(after_scan(Horizon(), Scan(0), [1, 3], limit=10), frozenset({"7/1", "8/4"}))
    assert horizon.watch == Watch(3, frozenset({"7/1", "8/4"}))
    horizon = observe(after_scan(horizon, next_scan(horizon), [], limit=10), frozenset({"8/4", "9/1"}))
    assert horizon.missing == (2,)
    horizon = observe(after_scan(horizon, next_scan(horizon), [], limit=10), frozenset({"9/1"}))
    assert next_scan(horizon).probes == (2,), "the scan after the holders ended still asks"
    horizon = after_scan(horizon, next_scan(horizon), [], limit=10)
    assert horizon.floor == 3
    assert next_scan(horizon) == Scan(above=3)


def test_a_cut_scan_does_not_raise_the_floor_over_rows_it_left_unread() -> None:
    horizon = Horizon(floor=0, last=100, missing=None, settled=100)
    horizon = after_scan(horizon, Scan(0), [10, 20], limit=2)
    assert horizon.floor == 20


def test_too_many_missing_ids_turn_scans_into_walks_from_the_floor() -> None:
    horizon = after_scan(Horizon(floor=5, last=5, missing=()), Scan(5), [1000], limit=10, missing_limit=3)
    assert horizon.missing is None
    assert next_scan(horizon) == Scan(above=5)


def test_a_database_that_names_no_holders_is_walked_from_the_head_for_ever() -> None:
    horizon = after_scan(Horizon(), Scan(0), [10], limit=10, missing_limit=3)
    assert observe(horizon, None) == horizon
    assert next_scan(horizon) == Scan(above=0)


def test_ids_that_begin_again_below_the_floor_start_everything_anew() -> None:
    horizon = Horizon(floor=500, last=500, missing=())
    assert after_scan(horizon, next_scan(horizon, sweep=True), [1, 2], limit=10) == Horizon()


def test_rows_in_hand_below_the_floor_are_no_new_beginning() -> None:
    horizon = Horizon(floor=500, last=500, missing=())
    swept = after_scan(horizon, Scan(0), [499, 500], in_hand=frozenset({499, 500}), limit=10)
    assert swept.floor == 500


@dataclass
class Transaction:
    """An open transaction of a writer, with what it could see when it began."""

    name: str
    saw: frozenset[int]
    ids: list[int] = field(default_factory=list)


class Table:
    """Writers that commit in any order, and a relay that scans, publishes and purges with delays."""

    def __init__(self) -> None:
        self.sequence = 0
        self.names = 0
        self.open: list[Transaction] = []
        self.visible: set[int] = set()
        self.committed: set[int] = set()
        self.causes: dict[int, frozenset[int]] = {}
        self.horizon = Horizon()
        self.in_hand: set[int] = set()
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

    def scan(self, limit: int, missing_limit: int, sweep: bool) -> None:
        in_hand = frozenset(self.in_hand)
        scan = next_scan(self.horizon, sweep=sweep)
        limit += len(in_hand)
        above = sorted(id for id in self.visible if id > scan.above)[:limit]
        seen = sorted({*above, *(self.visible & set(scan.probes))})
        fresh = [id for id in seen if id not in in_hand]
        self.horizon = after_scan(self.horizon, scan, seen, in_hand=in_hand, limit=limit, missing_limit=missing_limit)
        self.in_hand.update(fresh)
        self.published.extend(fresh)
        if is_watching(self.horizon):
            self.horizon = observe(self.horizon, frozenset(each.name for each in self.open))

    def purge(self, every: int) -> None:
        gone = set(sorted(self.in_hand)[::every])
        self.visible -= gone
        self.in_hand -= gone

    def finish(self) -> None:
        """Everybody commits, and the relay goes on without a sweep until nothing is left."""
        while self.open:
            self.end(0, commit=True)
        for _ in range(len(self.committed) + 6):
            self.scan(6, 50, sweep=False)
            self.purge(1)

    def check(self) -> None:
        position = {id: place for place, id in enumerate(self.published)}
        assert len(position) == len(self.published), "a row was published twice"
        assert set(position) == self.committed, "a committed row was never published"
        for id, place in position.items():
            late = [cause for cause in self.causes[id] if position[cause] > place]
            assert not late, f"{id} was published before {late}, which it could have seen"


who = st.integers(0, 3)
inserts = st.tuples(st.just("insert"), who, st.integers(1, 3))
ends = st.tuples(st.just("end"), who, st.sampled_from([True, True, False]))
scans = st.tuples(st.just("scan"), st.integers(1, 6), st.sampled_from([0, 2, 50]), st.just(False))
sweeps = st.tuples(st.just("scan"), st.integers(1, 6), st.just(50), st.just(True))
purges = st.tuples(st.just("purge"), st.integers(1, 3))


@settings(max_examples=800, deadline=None)
@given(st.lists(st.one_of(inserts, inserts, ends, ends, scans, scans, scans, scans, sweeps, purges), max_size=40))
def test_no_row_is_lost_doubled_or_overtaken_however_commits_cross(steps: list[tuple[Any, ...]]) -> None:
    table = Table()
    for name, *arguments in steps:
        getattr(table, name)(*arguments)
    table.finish()
    table.check()
