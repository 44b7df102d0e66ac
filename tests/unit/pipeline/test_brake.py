"""The brake: a table that refuses nearly everything is waited for, a bad record is buried."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import PATIENCE_SECONDS
from inorder.model.errors import ConfigurationError, MassRefusalError, RejectedError
from inorder.pipeline.brake import FEW, WINDOW_SECONDS, Brake, Bury, Recent, Tally, Wait, decide
from inorder.pipeline.decoding import UNEXPECTED
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from tests.fakes.table_store import MemoryTableStore, StoredRow, message, slice_of
from tests.selection import examples

MAPPING = TableMapping("demo", "upsert", "messages")
NOTHING = Tally()
QUIET = Tally(60_000)


def refused(records: int, **codes: int) -> Tally:
    return Tally(records, {code.strip("_"): number for code, number in codes.items()})


@pytest.mark.parametrize(
    ("found", "recent", "share", "waited", "waits"),
    [
        (refused(1_000, _23514=1), NOTHING, 0.5, 0.0, False),  # one bad record among good ones
        (refused(1, _23514=1), NOTHING, 0.5, 0.0, True),  # alone: it waits for company
        (refused(1, _23514=1), QUIET, 0.5, 0.0, True),
        (refused(1, _23514=1), QUIET, 0.5, PATIENCE_SECONDS, False),  # no company came
        (refused(1, _23514=1), NOTHING, 0.5, math.inf, False),  # a run that does not wait
        (refused(FEW - 1, P0001=FEW - 1), NOTHING, 0.5, math.inf, False),
        (refused(FEW, P0001=FEW), NOTHING, 0.5, math.inf, True),  # a broken trigger
        (refused(FEW, P0001=FEW), QUIET, 0.5, 3_600.0, True),  # for hours
        (refused(2 * FEW, P0001=FEW), NOTHING, 0.5, 0.0, False),  # exactly the share is not more
        (refused(2 * FEW - 1, P0001=FEW), NOTHING, 0.5, 0.0, True),
        (refused(100, P0001=40, _23502=40), NOTHING, 0.5, 0.0, False),  # none of two codes is above the share
        (refused(100, P0001=40, _23502=51), NOTHING, 0.5, 0.0, True),
        (refused(1, P0001=1), refused(FEW - 1, P0001=FEW - 1), 0.5, math.inf, True),  # one by one, all refused
        (refused(1, P0001=1), refused(FEW - 1, _23502=FEW - 1), 0.5, math.inf, False),  # of another code
        (refused(1, P0001=1), refused(1_000, P0001=499), 0.5, math.inf, False),  # a trickle just below the share
        (refused(1, P0001=1), refused(1_000, P0001=500), 0.5, math.inf, True),
        (refused(100, P0001=100), NOTHING, 1.0, 0.0, False),  # switched off
        (refused(100, P0001=11), NOTHING, 0.1, 0.0, True),
        (Tally(100), refused(100, P0001=100), 0.5, 0.0, False),  # nothing is refused any more
    ],
)
def test_the_decision(found: Tally, recent: Tally, share: float, waited: float, waits: bool) -> None:
    assert isinstance(decide(found, recent, share, waited), Wait) is waits


TALLIES = st.dictionaries(st.sampled_from(["P0001", "23514"]), st.integers(1, 40), max_size=2).flatmap(
    lambda codes: st.integers(sum(codes.values()), 200).map(lambda records: Tally(records, codes))
)
SHARES = st.floats(0.01, 1.0)
WAITS = st.sampled_from([0.0, 0.5, PATIENCE_SECONDS, 60.0, math.inf])


@examples(300)
@given(TALLIES, TALLIES, SHARES, WAITS)
def test_a_slice_that_is_mostly_refused_is_never_buried(
    found: Tally, recent: Tally, share: float, waited: float
) -> None:
    is_mass = any(number >= FEW and number > share * found.records for number in found.refused.values())
    decision = decide(found, recent, share, waited)
    assert not (is_mass and decision == Bury())


@examples(300)
@given(TALLIES, TALLIES, SHARES, WAITS)
def test_a_wait_has_its_reason(found: Tally, recent: Tally, share: float, waited: float) -> None:
    decision = decide(found, recent, share, waited)
    if isinstance(decision, Wait):
        assert decision.code in found.refused
        assert decision.refused > share * decision.records
        assert decision.refused >= FEW or waited < PATIENCE_SECONDS
        assert share < 1


@examples(200)
@given(st.lists(st.tuples(st.floats(0, 30), TALLIES), max_size=30))
def test_the_memory_holds_the_last_minute_and_at_least_the_last_few_records(steps: list[tuple[float, Tally]]) -> None:
    recent, now, added = Recent(), 0.0, list[tuple[float, Tally]]()
    for pause, tally in steps:
        now += pause
        recent.add(tally, now)
        added.append((now, tally))
        total = recent.total(now)
        young = sum((one for at, one in added if now - at <= WINDOW_SECONDS - 1), Tally())
        assert total.records >= young.records
        assert total.records >= min(FEW, sum(one.records for _, one in added))
        assert all(total.refused.get(code, 0) >= number for code, number in young.refused.items())


def test_the_memory_forgets_what_is_older_than_a_minute() -> None:
    recent = Recent()
    recent.add(refused(50, P0001=50), 0.0)
    recent.add(Tally(FEW), 100.0)
    assert recent.total(100.0) == Tally(FEW)


def refuses_bad(row: StoredRow) -> bool:
    if row.values[1] == "bad":
        error = RejectedError("the trigger raised")
        error.state = "P0001"
        raise error
    return False


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_of_a_slice_is_committed_when_the_partition_waits_and_all_of_it_when_the_table_is_repaired() -> None:
    is_broken = [True]
    store = MemoryTableStore(refuses=lambda row: is_broken[0] and refuses_bad(row))
    batch = slice_of(*((key, message(key, data="bad" if key > 3 else "ok")) for key in range(5_000)))
    brake = Brake(0.5)
    with pytest.raises(
        MassRefusalError, match=r"upsert\[0\] waits at offset 0: \d+ of 200 .* P0001.*the trigger"
    ) as it:
        apply_slice(store, MAPPING, batch, 0, brake)
    assert it.value.place == ("upsert", 0)
    assert "max_refused_share = 1" in it.value.hint
    assert (store.contents.rows, store.contents.letters, store.contents.pointers) == ({}, {}, {})
    is_broken[0] = False
    assert apply_slice(store, MAPPING, batch, 0, brake).applied == 5_000


def test_a_table_that_is_repaired_in_the_middle_of_an_attempt_costs_no_record() -> None:
    is_repaired = False

    def refuses(row: StoredRow) -> bool:
        nonlocal is_repaired
        is_repaired = is_repaired or row.version[1] == 40
        return not is_repaired

    store, brake = MemoryTableStore(refuses=refuses), Brake(0.5)
    batch = slice_of(*((offset, message(offset, data="x")) for offset in range(100)))
    held = replace(batch, is_held=True, waited_seconds=math.inf)
    once = replace(MAPPING, max_attempts=1)
    with pytest.raises(MassRefusalError, match="40 of 100") as caught:
        apply_slice(store, once, held, 0, brake)
    assert (caught.value.is_certain, store.contents.rows, store.contents.letters) == (False, {}, {})
    assert apply_slice(store, once, held, 0, brake).applied == 100


def test_records_that_are_refused_again_after_others_were_accepted_are_buried() -> None:
    store = MemoryTableStore(refuses=lambda row: "bad" in row.values)
    batch = slice_of(*((offset, message(offset, data="bad" if offset < 20 else "x")) for offset in range(100)))
    brake = Brake(0.5)
    held = replace(batch, is_held=True, waited_seconds=math.inf)
    with pytest.raises(MassRefusalError):
        apply_slice(store, MAPPING, held, 0, brake)
    outcome = apply_slice(store, MAPPING, held, 0, brake)
    assert (outcome.applied, outcome.rejected) == (80, 20)


def test_the_good_records_before_the_bad_ones_of_a_large_slice_are_applied_and_it_waits_behind_them() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    batch = slice_of(*((key, message(key, data="bad" if key >= 1_000 else "ok")) for key in range(2_000)))
    with pytest.raises(MassRefusalError) as found:
        apply_slice(store, MAPPING, batch, 0, Brake(0.5))
    assert found.value.offset == store.contents.pointers["upsert", 0].next_offset == 1_000
    assert (len(store.contents.rows), store.contents.letters) == (1_000, {})


def test_a_single_bad_record_among_good_ones_is_buried_at_once() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    batch = slice_of(*((key, message(key, data="bad" if key == 3 else "ok")) for key in range(5)))
    assert apply_slice(store, MAPPING, batch, 0, Brake(0.5)).rejected == 1


def test_a_flood_below_the_share_is_buried_in_pieces_and_every_record_is_counted() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    batch = slice_of(*((key, message(key, data="bad" if key % 3 == 0 else "ok")) for key in range(1_000)))
    outcome = apply_slice(store, MAPPING, batch, 0, Brake(0.5))
    assert (outcome.read, outcome.applied, outcome.rejected, outcome.next_offset) == (1_000, 666, 334, 1_000)
    assert len(store.contents.letters) == 334


def test_garbage_never_makes_a_partition_wait() -> None:
    store = MemoryTableStore()
    batch = slice_of(*((offset, b"?") for offset in range(1_000)))
    assert apply_slice(store, MAPPING, batch, 0, Brake(0.01)).rejected == 1_000


def test_records_of_a_lone_trickle_are_buried_until_they_are_many_in_a_row() -> None:
    clock = Clock()
    store, brake = MemoryTableStore(refuses=refuses_bad), Brake(0.5, clock)
    offset = 0
    while True:
        one = slice_of((offset, message(offset, data="bad")))
        with pytest.raises(MassRefusalError):
            apply_slice(store, MAPPING, one, 0, brake)
        try:
            apply_slice(store, MAPPING, replace(one, waited_seconds=1.0), 0, brake)
        except MassRefusalError:
            break
        clock.now += 40.0
        offset += 1
    assert len(store.contents.letters) == FEW - 1
    forgetful = Brake(0.5, clock)  # after a restart the slice alone decides
    one = slice_of((offset, message(offset, data="bad")))
    assert apply_slice(store, MAPPING, replace(one, waited_seconds=1.0), 0, forgetful).rejected == 1


def test_code_that_fails_at_every_record_is_no_reason_to_bury_them() -> None:
    def fails(_row: StoredRow) -> bool:
        raise AttributeError("a library of another version")

    store = MemoryTableStore(refuses=fails)
    batch = slice_of(*((key, message(key, data="ok")) for key in range(3_000)))
    with pytest.raises(MassRefusalError, match=f"{UNEXPECTED}.*another version"):
        apply_slice(store, MAPPING, batch, 0, Brake(0.5))
    assert store.contents.letters == {}


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1, math.nan])
def test_a_share_that_means_nothing_is_refused(share: float) -> None:
    with pytest.raises(ConfigurationError, match="max_refused_share"):
        replace(MAPPING, max_refused_share=share)
