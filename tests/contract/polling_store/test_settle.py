"""The result of a round is written as a whole or not at all, once, and only by an owner that knows the offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from inorder.model.errors import FencedError
from inorder.relay.stores.ports import MissingEvent, PollingStore, Settlement
from tests.contract.polling_store.places import Place


def missing(store: PollingStore) -> list[tuple[int, int, bool]]:
    """The missing events by id: retry count, and whether they were refused."""
    return [(event.id, event.retry_count, event.exception_thrown) for event in store.missing(0, 100)]


def missed(*ids: int) -> list[MissingEvent]:
    return [MissingEvent(id) for id in ids]


def test_it_begins_with_nothing(store: PollingStore) -> None:
    store.check()
    assert store.offset() == 0
    assert missing(store) == []
    assert store.parked() == {}


def test_the_offset_moves_together_with_what_is_missing(store: PollingStore) -> None:
    store.settle(Settlement(0, 7, missed=[*missed(5, 3), MissingEvent(4, 1, exception_thrown=True)]))
    assert store.offset() == 7
    assert missing(store) == [(3, 0, False), (4, 1, True), (5, 0, False)]


def test_the_offset_moves_alone_as_well(store: PollingStore) -> None:
    store.settle(Settlement(0, 7))
    store.settle(Settlement(7, 9))
    assert store.offset() == 9


def test_a_missing_event_knows_since_when(store: PollingStore) -> None:
    store.settle(Settlement(0, 1, missed=missed(1)))
    (event,) = store.missing(0, 1)
    assert event.missed_at is not None
    assert abs(datetime.now(UTC) - event.missed_at) < timedelta(minutes=1)


def test_missing_events_come_in_pages_by_id(store: PollingStore) -> None:
    store.settle(Settlement(0, 9, missed=missed(8, 2, 6, 4)))
    assert [event.id for event in store.missing(0, 3)] == [2, 4, 6]
    assert [event.id for event in store.missing(6, 3)] == [8]
    assert store.missing(8, 3) == []


@pytest.mark.parametrize("to", [5, 8])
def test_whoever_is_wrong_about_the_offset_writes_nothing(store: PollingStore, to: int) -> None:
    store.settle(Settlement(0, 7, missed=missed(3)))
    with pytest.raises(FencedError, match="7"):
        store.settle(Settlement(5, to, missed=missed(6), waited=[3], delivered=[3], exceeded=[(3, "x")]))
    assert store.offset() == 7
    assert missing(store) == [(3, 0, False)]


def test_whoever_moves_only_the_offset_must_know_it_too(store: PollingStore) -> None:
    store.settle(Settlement(0, 7))
    with pytest.raises(FencedError):
        store.settle(Settlement(0, 8))
    with pytest.raises(FencedError):
        store.settle(Settlement(6, 6))
    assert store.offset() == 7


def test_attempts_are_counted_and_refusals_noted(store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1, 2, 3)))
    for _ in range(2):
        store.settle(Settlement(5, 5, failed=[1], waited=[2]))
    assert missing(store) == [(1, 2, True), (2, 2, False), (3, 0, False)]


def test_an_id_that_is_missing_already_stays_as_it_is(store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(2)))
    store.settle(Settlement(5, 5, failed=[2]))
    store.settle(Settlement(5, 6, missed=[*missed(2), MissingEvent(6)]))
    assert missing(store) == [(2, 1, True), (6, 0, False)]


def test_what_is_delivered_is_missing_no_more(store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1, 2, 3)))
    store.settle(Settlement(5, 9, missed=missed(8), delivered=[1, 3, 77]))
    assert missing(store) == [(2, 0, False), (8, 0, False)]
    assert store.offset() == 9


def test_what_was_exceeded_and_came_after_all_is_exceeded_no_more(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1), exceeded=[(1, "never seen")]))
    store.settle(Settlement(5, 5, delivered=[1]))
    assert place.exceeded() == []


def test_what_is_given_up_moves_with_its_attempts_and_the_reason(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1, 2, 3)))
    store.settle(Settlement(5, 5, failed=[1], waited=[2]))
    store.settle(Settlement(5, 5, failed=[1], exceeded=[(1, "RECORD-001: too large, ü %"), (2, "'not seen'")]))
    assert missing(store) == [(3, 0, False)]
    assert place.exceeded() == [(1, 2, True, "RECORD-001: too large, ü %"), (2, 1, False, "'not seen'")]


def test_a_malformed_row_is_given_up_at_once(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(4), exceeded=[(4, "header is not a JSON object")]))
    assert missing(store) == []
    assert place.exceeded() == [(4, 0, False, "header is not a JSON object")]


def test_what_is_not_missing_cannot_be_given_up(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, exceeded=[(4, "a decision of long ago")]))
    assert place.exceeded() == []


def test_what_is_given_up_again_has_the_newer_reason(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(4), exceeded=[(4, "first")]))
    store.settle(Settlement(5, 5, missed=missed(4)))
    store.settle(Settlement(5, 5, failed=[4], exceeded=[(4, "second")]))
    assert place.exceeded() == [(4, 1, True, "second")]


def test_a_settlement_that_moved_the_offset_is_written_once(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1, 2, 3)))
    again = Settlement(5, 9, missed=missed(8), failed=[1], waited=[2], delivered=[3], exceeded=[(2, "x")])
    for _ in range(3):
        store.settle(again)
    assert store.offset() == 9
    assert missing(store) == [(1, 1, True), (8, 0, False)]
    assert place.exceeded() == [(2, 1, False, "x")]


def test_one_that_did_not_may_be_written_twice(place: Place, store: PollingStore) -> None:
    store.settle(Settlement(0, 5, missed=missed(1, 2, 3)))
    for _ in range(2):
        store.settle(Settlement(5, 5, missed=missed(4), delivered=[1], exceeded=[(2, "x")]))
    assert missing(store) == [(3, 0, False), (4, 0, False)]
    assert place.exceeded() == [(2, 0, False, "x")]


def test_keys_of_exceeded_events_are_told_with_their_ids(place: Place, store: PollingStore) -> None:
    for topic, key in (("t", "a"), ("t", "ü"), ("u", "a"), ("t", "a"), ("t", None)):
        place.insert(topic, key)
    exceeded = [(id, "x") for id in (4, 1, 3, 5, 99)]
    store.settle(Settlement(0, 99, missed=missed(1, 2, 3, 4, 5, 99), exceeded=exceeded))
    assert store.parked() == {("t", b"a"): (1, 4), ("u", b"a"): (3,)}


def test_figures_for_people(place: Place, store: PollingStore) -> None:
    empty = store.state()
    assert (empty.offset, empty.newest_id, empty.missing, empty.exceeded, empty.behind) == (0, 0, 0, 0, 0)
    assert empty.oldest_missing is None
    for _ in range(5):
        place.insert()
    store.settle(Settlement(0, 3, missed=missed(1, 2), exceeded=[(2, "x")]))
    state = store.state()
    assert (state.offset, state.newest_id, state.missing, state.exceeded, state.behind) == (3, 5, 1, 1, 2)
    assert state.oldest_missing == store.missing(0, 1)[0].missed_at
