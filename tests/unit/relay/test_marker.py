"""A marker names rows by their content, and whatever is in its record is either understood or refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inorder.model.errors import PermanentError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay import loop as relay_loop
from inorder.relay.drain import DrainClaims, DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import LeaderLoop, RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.marker import (
    BATCH_BYTES,
    MARKER_BYTES,
    VERSION,
    Marker,
    PublishedBatch,
    markable,
    name_rows,
    phantoms,
    prove,
    ranges,
    settled_floor,
    split,
)
from inorder.relay.options import LoopOptions
from inorder.relay.polling import PollingLoop, PollingOptions, PollingTables
from inorder.relay.purge_queue import MOST_BYTES, purge_marker
from inorder.relay.stores.ports import LAST_ID, Exceeding, Origin, Scan
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.fakes.polling import MemoryPollingStore, MemoryPollingTables
from tests.unit.relay.test_simulation import HASTE


def row(id: int, value: bytes | None = b"v", key: bytes | None = b"k", topic: str = "t") -> OutboxRow:
    return OutboxRow(id, topic, key, value, (), None, None)


def marker_of(*rows: OutboxRow) -> Marker:
    return name_rows([PublishedBatch.of(rows)], Marker())


VALUES, KEYS = st.none() | st.binary(max_size=3), st.none() | st.binary(min_size=2, max_size=2)
ROWS = st.lists(
    st.builds(row, st.integers(1, 9), VALUES, KEYS, st.sampled_from("ab")), max_size=6, unique_by=lambda each: each.id
).map(lambda found: sorted(found, key=lambda each: each.id))


@given(ROWS, ROWS)
def test_a_take_over_purges_what_was_published_and_leaves_every_other_row(
    published: list[OutboxRow], found: list[OutboxRow]
) -> None:
    outbox = MemoryOutbox()
    for each in found:
        outbox.put_back(each)
    marker = Marker.decode(marker_of(*published).encode())
    taken = purge_marker(outbox, marker)
    left = {each.id: each for each in outbox.rows_to_purge(range(10)).rows}
    assert left == {each.id: each for each in found if each not in published}
    assert taken.purged == len(found) - len(left)
    named = {each.id for each in published}
    assert set(taken.replaced) == {each.id for each in found if each.id in named and each not in published}


@given(ROWS, st.integers(0, LAST_ID), st.none() | st.text(max_size=3))
def test_a_marker_is_read_as_it_was_written(rows: list[OutboxRow], floor: int, outbox: str | None) -> None:
    marker = replace(marker_of(*rows), floor=floor, outbox=outbox, server="s/1", phantoms=((2, 5),))
    assert Marker.decode(marker.encode()) == marker
    assert marker.rows() == dict(zip([each.id for each in rows], prove(rows), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"w"},
        {"value": None},
        {"value": b""},
        {"key": None},
        {"topic": "u"},
        {"headers": ()},
        {"headers": (("id", b"2"),)},
        {"headers": (("id", None),)},
    ],
)
def test_what_is_sent_tells_rows_apart(change: dict[str, Any]) -> None:
    """Each part by itself: the rows differ in nothing else."""
    first = row(1)._replace(headers=(("id", b"1"),))
    assert split([first._replace(**change)], {1: prove([first])[0]}) == ([], [1])
    assert split([first], {1: prove([first])[0]}) == ([1], [])


def test_a_batch_is_cut_where_its_part_of_the_marker_is_full() -> None:
    rows = [row(id) for id in range(1, 1_000, 2)]
    cut = markable(rows, 1_000)
    assert 0 < PublishedBatch.of(rows[:cut]).bytes <= 1_000
    assert PublishedBatch.of(rows[: 2 * cut]).bytes > 1_000, "no smaller than it must be"


def test_a_mark_does_not_change_what_a_row_is() -> None:
    assert prove([row(1)]) == prove([row(1)._replace(partition_key=b"p", timestamp_ms=7)])


def test_a_row_as_no_layout_returns_it_has_a_proof_all_the_same() -> None:
    odd: dict[str, Any] = {"key": 7, "value": "text"}
    assert len({*prove([row(1)._replace(**odd), row(1)])}) == 2


def test_a_marker_of_version_1_is_believed() -> None:
    marker = Marker.decode(b'{"outbox": "a", "published": "1-2", "floor": 4}')
    assert (marker.rows(), marker.floor, list(marker.ids())) == (None, 4, [1, 2])
    outbox = MemoryOutbox()
    outbox.put_back(row(2, b"another"))
    assert purge_marker(outbox, marker).purged == 1


def read_as_version_1(value: bytes) -> tuple[list[tuple[int, ...]], int, str | None]:
    """How the release before this one reads a marker."""
    fields = json.loads(value)
    spans = [tuple(map(int, span.split("-"))) for span in fields["published"].split(",") if span]
    exceeding = Exceeding(**fields["exceeding"]) if "exceeding" in fields else None
    return spans, int(fields["floor"]), None if exceeding is None else exceeding.code


def test_the_release_before_reads_what_this_one_writes() -> None:
    exceeding = Exceeding(3, 5, "RECORD-001", "too large", parks=True)
    marker = replace(marker_of(row(1), row(2), row(7)), floor=2, exceeding=exceeding, exceeding_proof=1, server="s")
    assert read_as_version_1(marker.encode()) == ([(1, 2), (7,)], 2, "RECORD-001")


def test_a_marker_of_a_later_release_stops_this_one_with_a_sentence() -> None:
    later = json.dumps({"version": VERSION + 1, "published": {"other": "form"}})
    with pytest.raises(PermanentError, match=rf"version {VERSION + 1}.*up to {VERSION}") as caught:
        Marker.decode(later.encode())
    assert "pip install --upgrade inorder" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "change",
    [
        {"published": "1-9223372036854775807"},
        {"published": "7-3"},
        {"published": "1e999"},
        {"published": "1-2-3"},
        {"published": "-5"},
        {"published": "99999999999999999999"},
        {"published": "1,,x"},
        {"published": 7},
        {"published": "\u0661"},
        {"floor": 1e999},
        {"floor": -1},
        {"floor": "7"},
        {"floor": True},
        {"version": 0},
        {"version": "2"},
        {"version": 1.5},
        {"outbox": 7},
        {"proofs": "AAAA"},
        {"proofs": "%%%%"},
        {"published": "1-9223372036854775807", "proofs": ""},
        {"exceeding": {"row_id": "x", "attempts": 1, "code": "", "reason": "", "parks": True}},
        {"exceeding": {"row_id": 1}},
        {"exceeding_proof": "x"},
        {"server": 7},
        {"phantoms": "1-9223372036854775808"},
    ],
)
def test_a_marker_that_no_relay_wrote_is_refused_at_once(change: dict[str, Any]) -> None:
    written = json.dumps({"published": "1-2", "floor": 0} | change).encode()
    with pytest.raises(PermanentError, match="unknown what was published"):
        Marker.decode(written)


def test_a_marker_of_a_thousand_levels_is_refused() -> None:
    with pytest.raises(PermanentError, match="unknown what was published"):
        Marker.decode(b"[" * 200_000)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(0, 10**18), st.sampled_from([1, 6_000, 30_000, 60_000]))
def test_a_marker_has_a_bound_however_its_ids_lie(step: int, first: int, count: int) -> None:
    rows = [row(first + step * number) for number in range(count)]
    part = rows[: markable(rows)]
    assert part
    batch = PublishedBatch.of(part)
    assert len(name_rows([batch], Marker()).encode()) <= BATCH_BYTES + 100
    # A new batch is added while the others take less than `MOST_BYTES`.
    most = [batch] * (MOST_BYTES // batch.bytes)
    assert len(name_rows([*most, batch], Marker()).encode()) <= MARKER_BYTES


def test_lost_rows_are_named_only_where_the_database_went_back() -> None:
    marker = replace(marker_of(*map(row, range(21, 61))), server="a/1")
    assert phantoms(marker, [], Origin("a/1", 20)) == ()
    assert phantoms(marker, [], Origin(None, 20)) == ()
    assert phantoms(marker, [], Origin("a/2", 90)) == ()
    assert phantoms(marker, [], Origin("a/2", 40)) == ((41, 60),)
    assert phantoms(marker, [23, 24], Origin("a/1", 24)) == ((23, 24), (25, 60))
    assert phantoms(marker, [23, 24, 30], Origin("a/1", None)) == ((23, 24), (30, 30))


# Every strategy, in memory: 60 rows are published, then ids from 21 on are given out again.

Start = Callable[[MemoryOutbox, MemoryPollingTables, MemoryBroker, threading.Event], LeaderLoop[Any]]


def drain(
    outbox: MemoryOutbox, _tables: MemoryPollingTables, broker: MemoryBroker, stop: threading.Event
) -> LeaderLoop[Any]:
    strategy = DrainStrategy(outbox, batch_size=100)
    options = LoopOptions(stop=stop, pace=HASTE)
    return RelayLoop(strategy, MemoryExceeded(outbox), MemoryShardLog(broker), NoLease(), options)


def mark_purge(
    outbox: MemoryOutbox, _tables: MemoryPollingTables, broker: MemoryBroker, stop: threading.Event
) -> LeaderLoop[Any]:
    strategy = MarkPurgeStrategy(outbox, batch_size=100)
    options = LoopOptions(stop=stop, pace=HASTE)
    return RelayLoop(strategy, MemoryExceeded(outbox), MemoryShardLog(broker), NoLease(), options)


def polling(
    outbox: MemoryOutbox, tables: MemoryPollingTables, broker: MemoryBroker, stop: threading.Event
) -> LeaderLoop[Any]:
    options = PollingOptions(stop=stop, pace=HASTE, queue_wait=0.001, look_wait=0.002, missing_wait=0.05)
    mine = PollingTables(outbox, outbox, MemoryPollingStore(tables))
    return PollingLoop(mine, MemoryShardLog(broker), NoLease(), options)


@contextmanager
def running(relay: LeaderLoop[Any], stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def write(outbox: MemoryOutbox, *values: str) -> None:
    for value in values:
        outbox.insert("t", "t", b"k", value.encode())
    outbox.end("t")


@pytest.mark.parametrize("restarts", [True, False], ids=["restarted", "running"])
@pytest.mark.parametrize("sets_offset", [True, False], ids=["offset back", "offset stays"])
@pytest.mark.parametrize("start", [drain, mark_purge, polling])
def test_rows_that_get_ids_of_published_ones_are_published_too(
    start: Start, sets_offset: bool, restarts: bool, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inorder.relay.scan.IDLE_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(relay_loop, "IDLE_SWEEP_SECONDS", 0.01)
    outbox, broker = MemoryOutbox(), MemoryBroker()
    tables, stop = MemoryPollingTables(outbox), threading.Event()
    old, new = [f"old {number}" for number in range(60)], [f"new {number}" for number in range(50)]

    def go_back() -> None:
        with tables.lock:
            outbox.go_back(20)
            if sets_offset:
                tables.offset = 20
            write(outbox, *new)

    def sent() -> list[str]:
        return sorted((each.value or b"").decode() for each in list(broker.records))

    write(outbox, *old)
    with running(start(outbox, tables, broker, stop), stop):
        eventually(lambda: len(broker.records) == 60 and (start is polling or outbox.count() == 0))
        if start is polling:
            eventually(lambda: tables.offset == 60)
        if not restarts:
            go_back()
            eventually(lambda: len(broker.records) >= 110)
    if restarts:
        go_back()
        again = threading.Event()
        with running(start(outbox, tables, broker, again), again):
            eventually(lambda: len(broker.records) >= 110)
    assert sent() == sorted([*old, *new])


def test_a_purge_that_is_repeated_on_another_server_spares_its_rows(eventually: Eventually) -> None:
    class Failing(MemoryOutbox):
        """Loses its session at the first purge, and with it the last rows."""

        has_failed = False

        def purge(self, ids: Any, session: int | None = None) -> int:
            if ids and not self.has_failed:
                self.has_failed = True
                self.go_back(0, server="b")
                write(self, "new 1", "new 2")
                raise UnreachableError("The connection broke.")
            return super().purge(ids, session)

    outbox, broker, stop = Failing(), MemoryBroker(), threading.Event()
    write(outbox, "old 1", "old 2", "old 3")
    with running(drain(outbox, MemoryPollingTables(outbox), broker, stop), stop):
        eventually(lambda: len(broker.records) >= 5)
    assert [each.value for each in broker.records] == [b"old 1", b"old 2", b"old 3", b"new 1", b"new 2"]


class ReplacedOutbox(MemoryOutbox):
    """Its server is replaced between the purge of a take-over and the first read, by one that lacks that purge.

    As on real servers, the session that purged ends unnoticed: nothing uses it in between.
    """

    def __init__(self, new_server: str) -> None:
        super().__init__()
        self.go_back(0, server="a/1")
        self._new_server = new_server
        self._purged: list[OutboxRow] = []
        self._is_replaced = self._is_broken = False

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        self._purged += self.rows_to_purge(ids).rows
        return super().purge(ids, session)

    def begin_reads(self) -> Origin:
        if self._purged and not self._is_replaced:
            self._is_replaced = self._is_broken = True
            for lost in self._purged:
                self.put_back(lost)
            return Origin(self._new_server, self._table.last_id)
        return super().begin_reads()

    def origin(self) -> Origin:
        """A server that was replaced still answers the session that purges, one that was restarted does not."""
        if self._is_broken:
            self._is_broken = False
            if self._new_server == "a/1":
                raise UnreachableError("The connection broke.")
            return Origin("a/1", self._table.last_id)
        return Origin(self._new_server if self._is_replaced else "a/1", self._table.last_id)


@pytest.mark.parametrize("new_server", ["a/2", "a/1"], ids=["promoted", "restarted"])
@pytest.mark.parametrize("start", [drain, mark_purge])
def test_a_take_over_that_purged_on_one_server_does_not_read_from_another(
    start: Start, new_server: str, eventually: Eventually
) -> None:
    outbox, broker, stop = ReplacedOutbox(new_server), MemoryBroker(), threading.Event()
    write(outbox, "1", "2")
    broker.marker = marker_of(*outbox.read(Scan(above=0), 10).rows).encode()
    with running(start(outbox, MemoryPollingTables(outbox), broker, stop), stop):
        eventually(lambda: outbox.count() == 0)
        write(outbox, "3")
        eventually(lambda: outbox.count() == 0)
    assert [each.value for each in broker.records] == [b"3"]


def test_a_decision_is_not_carried_out_on_another_row_with_that_id() -> None:
    outbox = MemoryOutbox()
    exceeding = Exceeding(1, 5, "RECORD-001", "too large", parks=True)
    marker = replace(Marker(proofs=()), exceeding=exceeding, exceeding_proof=prove([row(1)])[0])
    outbox.put_back(row(1, b"another"))
    assert not purge_marker(outbox, marker).exceeds
    outbox.put_back(row(1))
    assert purge_marker(outbox, marker).exceeds


def test_the_term_after_names_what_was_lost_and_the_markers_keep_it(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    outbox.go_back(0, server="a/1")
    write(outbox, *map(str, range(60)))
    with running(drain(outbox, MemoryPollingTables(outbox), broker, stop), stop):
        eventually(lambda: outbox.count() == 0)
    outbox.go_back(20, server="a/2")
    for _ in range(2):
        write(outbox, "new")
        again = threading.Event()
        with running(drain(outbox, MemoryPollingTables(outbox), broker, again), again):
            eventually(lambda: outbox.count() == 0)
        assert Marker.decode(broker.marker).phantoms == ((21, 21), (22, 60))
    found = [each for each in caplog.records if each.message == "relay.database_went_back"]
    assert [each.__dict__["phantoms"] for each in found] == ["21,22-60"]


def lost_and_given_out_again() -> tuple[MemoryOutbox, Marker]:
    """Rows 1 to 6 were published; then a server without 3 to 6 gives their ids to a transaction that stays open."""
    outbox = MemoryOutbox()
    outbox.go_back(0, server="a/1")
    write(outbox, *map(str, range(6)))
    marker = replace(marker_of(*outbox.read(Scan(above=0), 10).rows), floor=6, server="a/1")
    outbox.go_back(2, server="a/2")
    for number in range(3, 7):
        outbox.insert("open", "t", b"k", b"open %d" % number)
    return outbox, marker


def test_rows_whose_ids_were_held_at_the_take_over_are_not_overtaken() -> None:
    """The last id is that of a server which lost nothing, and no row shows that it did."""
    outbox, marker = lost_and_given_out_again()
    claims = DrainClaims(outbox, batch_size=10, clock=lambda: 0.0)
    claims.begin(marker)
    assert claims.claim(frozenset).rows == []
    outbox.end("open")
    write(outbox, "after")
    assert [each.id for each in claims.claim(frozenset).rows] == [3, 4, 5, 6, 7]


def test_rows_that_are_lost_are_named_when_others_get_their_ids_later(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, marker = lost_and_given_out_again()
    broker, stop = MemoryBroker(marker=marker.encode()), threading.Event()
    with running(drain(outbox, MemoryPollingTables(outbox), broker, stop), stop):
        eventually(lambda: outbox.count() == 0)
        assert not [each for each in caplog.records if each.message == "relay.database_went_back"]
        outbox.end("open")
        eventually(lambda: len(broker.records) == 4 and outbox.count() == 0)
    assert Marker.decode(broker.marker).phantoms == ((3, 6),)
    found = [each for each in caplog.records if each.message == "relay.database_went_back"]
    assert [each.__dict__["phantoms"] for each in found] == ["3-6"]


def test_ranges_of_neighbours() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == ((1, 3), (7, 7), (9, 10))


@pytest.mark.parametrize(
    ("floor", "replaced", "origin", "settled"),
    [
        (60, False, Origin("a", 60), 60),
        (60, False, Origin("a", 20), 0),
        (60, False, Origin("b", 20), 0),
        (60, False, Origin("b", 90), 0),
        (60, True, Origin("a", 90), 0),
        (60, False, Origin("a"), 60),
        (60, False, Origin("b"), 0),
        (60, True, Origin("a"), 0),
        (60, False, Origin(), 60),
    ],
)
def test_a_floor_holds_unless_the_database_may_have_gone_back(
    floor: int, replaced: bool, origin: Origin, settled: int
) -> None:
    assert settled_floor(Marker(floor=floor, server="a"), replaced=replaced, origin=origin) == settled
