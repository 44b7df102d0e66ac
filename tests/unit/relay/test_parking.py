"""A bad record holds its key and nothing else, and lets nothing of its key pass."""

from __future__ import annotations

import pytest

from inorder.model.message import OutboxRow
from inorder.relay.options import Policy
from inorder.relay.parking import Parking, RefusalVerdict, Waiting, halve, judge, order_of

K = ("t", b"k")


def row(id: int, key: bytes | None = b"k", topic: str = "t") -> OutboxRow:
    return OutboxRow(id, topic, key, b"v", (), None, None)


def test_nothing_waits_at_first() -> None:
    rows = [row(1), row(2, b"other")]
    assert Parking().sift(rows) == rows


def test_later_rows_of_a_refused_row_wait_and_other_keys_go_on() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=5.0)
    assert parking.sift([row(1), row(2), row(3, b"other"), row(4, topic="u")]) == [row(3, b"other"), row(4, topic="u")]


def test_rows_before_the_refused_one_go_first() -> None:
    parking = Parking()
    parking.hold(row(5), retry_at=5.0)
    assert parking.sift([row(4), row(5), row(6)]) == [row(4)]


def test_what_waits_is_tried_again_in_order_once_its_time_has_come() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=5.0)
    parking.sift([row(7), row(3)])
    assert parking.due(4.9) == []
    assert parking.due(5.0) == [Waiting(K, [1, 3, 7])]
    assert parking.sift([row(8)]) == [row(8)], "while it is tried, the key is not held"


def test_attempts_add_up_over_tries_and_are_forgotten_once_it_went_through() -> None:
    parking = Parking()
    assert [parking.refuse(row(1)) for _ in range(3)] == [1, 2, 3]
    parking.forget_attempts([1])
    assert parking.refuse(row(1)) == 1


def test_a_parked_key_waits_whatever_the_clock_says() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=0.0)
    parking.exceed(row(1), parks=True, now=1.0)
    assert parking.due(1e9) == []
    assert parking.parked() == [("t", b"k")]
    assert parking.sift([row(2)]) == []


def test_a_skipped_row_lets_its_key_go_on_at_once_without_it() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=99.0)
    parking.sift([row(2)])
    parking.exceed(row(1), parks=False, now=1.0)
    assert parking.due(1.0) == [Waiting(K, [2])]


def test_a_released_key_gives_back_all_that_waited_with_the_exceeded_row_first() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=0.0)
    parking.exceed(row(1), parks=True, now=1.0)
    parking.sift([row(2), row(3)])
    assert parking.release({("t", b"k"): (1,)}) == [], "still parked in the store"
    assert parking.release({}) == [Waiting(K, [1, 2, 3])]
    assert parking.parked() == []


def test_a_new_owner_holds_the_keys_that_the_store_calls_parked() -> None:
    parking = Parking({("t", b"k"): (1,)})
    assert parking.sift([row(2), row(3, b"other")]) == [row(3, b"other")]
    assert parking.release({}) == [Waiting(K, [1, 2])]


def test_a_record_without_a_key_is_held_alone() -> None:
    parking = Parking()
    parking.hold(row(1, None), retry_at=0.0)
    assert parking.sift([row(1, None), row(2, None)]) == [row(2, None)]
    assert order_of(row(1, None)) != order_of(row(2, None))


def test_halves_cover_the_batch_in_order() -> None:
    rows = [row(id) for id in range(5)]
    first, second = halve(rows)
    assert [*first, *second] == rows
    assert len(first) == 2


def test_a_topic_waits_as_a_whole_and_other_topics_go_on() -> None:
    parking = Parking()
    parking.hold_topic("t", retry_at=5.0)
    assert parking.sift([row(1), row(2, None), row(3, topic="u")]) == [row(3, topic="u")]
    assert parking.due(4.9) == []
    assert parking.due(5.0) == [Waiting(("t",), [1, 2])]
    assert parking.sift([row(4)]) == [row(4)]


def test_a_topic_is_tried_with_one_row_and_a_key_with_all() -> None:
    assert Waiting(("t",), [1, 2]).first_size == 1
    assert Waiting(K, [1, 2]).first_size is None


def test_what_was_taken_out_and_is_held_again_waits_with_all_that_is_left() -> None:
    parking = Parking()
    parking.hold_topic("t", retry_at=0.0)
    parking.sift([row(1), row(2), row(3)])
    (waiting,) = parking.due(0.0)
    assert not parking.waits_again(waiting, 0)
    parking.hold_topic("t", retry_at=9.0)
    parking.sift([row(1)])
    assert parking.waits_again(waiting, 1)
    assert parking.due(9.0) == [waiting]


def test_a_parked_key_stays_parked_when_its_topic_comes_back() -> None:
    parking = Parking({K: (1,)})
    parking.hold_topic("t", retry_at=0.0)
    assert parking.sift([row(2), row(3, b"other")]) == []
    assert parking.due(0.0) == [Waiting(("t",), [2, 3])]
    assert parking.sift([row(2), row(3, b"other")]) == [row(3, b"other")]


def test_a_key_that_is_released_while_its_topic_is_due_goes_in_order_with_it() -> None:
    parking = Parking({K: (1,)})
    parking.sift([row(2)])
    parking.hold_topic("t", retry_at=0.0)
    parking.sift([row(3)])
    assert [*parking.release({}), *parking.due(0.0)] == [Waiting(("t",), [1, 2, 3])]


@pytest.mark.parametrize("topic_first", [True, False])
def test_a_key_that_is_due_together_with_its_topic_goes_in_order_with_it(topic_first: bool) -> None:
    parking = Parking()
    if topic_first:  # the order in which they began to wait must not matter
        parking.hold_topic("t", retry_at=0.0)
    parking.hold(row(1), retry_at=0.0)
    if not topic_first:
        parking.sift([row(2)])
        parking.hold_topic("t", retry_at=0.0)
    parking.sift([row(3), row(4, b"other"), row(5, topic="u")])
    assert parking.due(0.0) == [Waiting(("t",), [1, 3, 4] if topic_first else [1, 2, 3, 4])]
    assert not parking.holds()


def test_a_key_whose_time_has_come_waits_on_with_its_topic() -> None:
    parking = Parking()
    parking.hold(row(1), retry_at=1.0)
    parking.hold_topic("t", retry_at=9.0)
    parking.sift([row(2)])
    assert parking.due(1.0) == []
    assert parking.due(9.0) == [Waiting(("t",), [1, 2])]


def test_the_next_one_due_is_told_and_parked_keys_never_are() -> None:
    parking = Parking({("t", b"parked"): [1]})
    assert parking.due_at() is None
    parking.hold(row(2), retry_at=7.0)
    parking.hold_topic("u", retry_at=5.0)
    assert parking.due_at() == 5.0
    parking.due(6.0)
    assert parking.due_at() == 7.0


@pytest.mark.parametrize(
    ("policy", "attempts", "bad", "verdict"),
    [
        ("park", 2, row(1), RefusalVerdict.RETRY),
        ("park", 3, row(1), RefusalVerdict.PARK),
        ("park", 3, row(1, key=None), RefusalVerdict.SKIP),
        ("park", 3, row(1, topic=""), RefusalVerdict.SKIP),
        ("skip", 2, row(1), RefusalVerdict.RETRY),
        ("skip", 3, row(1), RefusalVerdict.SKIP),
        ("block", 2, row(1), RefusalVerdict.PAUSE),
        ("block", 3, row(1), RefusalVerdict.BLOCK),
    ],
)
def test_the_policy_decides_once_the_attempts_are_used_up(
    policy: Policy, attempts: int, bad: OutboxRow, verdict: RefusalVerdict
) -> None:
    assert judge(bad, attempts, 3, policy) is verdict
