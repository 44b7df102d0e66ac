"""A breaker opens after so many failures in a row, stays open for so long, and closes on the first success."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.breaker import BreakerCount, BreakerOptions, BreakerState
from inorder.model.errors import FencedError, PermanentError, TransientError, UnreachableError
from inorder.relay.breaker import CircuitBreaker

USUAL = BreakerOptions(threshold=3, open_seconds=600.0, half_open_attempts=1)
Clock = Callable[[], float]


def after(breaker: BreakerCount, outcomes: str, at: float = 0.0) -> BreakerCount:
    """The breaker after failures (f) and successes (s), all at one time."""
    for outcome in outcomes:
        breaker = breaker.after_success() if outcome == "s" else breaker.after_failure(at)
    return breaker


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ("", BreakerState.closed),
        ("ff", BreakerState.closed),
        ("ffs", BreakerState.closed),
        ("ffsff", BreakerState.closed),
        ("fff", BreakerState.open),
        ("ffffff", BreakerState.open),
        ("ffsfff", BreakerState.open),
        ("fffs", BreakerState.closed),
    ],
)
def test_it_opens_after_so_many_failures_in_a_row(outcomes: str, state: BreakerState) -> None:
    assert after(BreakerCount(USUAL), outcomes).state(0.0) is state


def test_it_is_half_open_after_its_time_and_one_failure_opens_it_for_as_long_again() -> None:
    opened = after(BreakerCount(USUAL), "fff", at=10.0)
    assert (opened.state(609.9), opened.allows(609.9)) == (BreakerState.open, False)
    assert (opened.state(610.0), opened.allows(610.0)) == (BreakerState.half_open, True)
    again = opened.after_failure(700.0)
    assert (again.state(1299.9), again.state(1300.0)) == (BreakerState.open, BreakerState.half_open)
    assert again.after_success() == BreakerCount(USUAL)


def test_a_half_open_one_allows_as_many_attempts_as_it_is_told() -> None:
    opened = after(BreakerCount(BreakerOptions(half_open_attempts=2)), "fff")
    once = opened.after_failure(600.0)
    assert once.state(600.0) is BreakerState.half_open
    assert once.after_failure(601.0).state(601.0) is BreakerState.open


def test_one_that_is_switched_off_allows_everything() -> None:
    assert after(BreakerCount(BreakerOptions(is_enabled=False)), "ffff").allows(0.0)


def replayed(options: BreakerOptions, steps: list[tuple[float, bool]]) -> list[tuple[float, BreakerState, bool]]:
    """Asks the database at some times, where that is allowed; each time, the state before and what came of it."""
    breaker, now, changes = BreakerCount(options), 0.0, list[tuple[float, BreakerState, bool]]()
    for pause, succeeds in steps:
        now += pause
        if breaker.allows(now):
            changes.append((now, breaker.state(now), succeeds))
            breaker = breaker.after_success() if succeeds else breaker.after_failure(now)
    return changes


@given(
    st.builds(
        BreakerOptions,
        threshold=st.integers(1, 4),
        open_seconds=st.sampled_from([1.0, 10.0]),
        half_open_attempts=st.integers(1, 3),
    ),
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0, 5.0, 10.0]), st.booleans()), max_size=60),
)
def test_whatever_happens_it_is_never_asked_while_open_and_never_shut_out_for_longer(
    options: BreakerOptions, steps: list[tuple[float, bool]]
) -> None:
    """Told by a plain count of what was asked, without a look into the breaker."""
    changes = replayed(options, steps)
    failures, opened_at, attempts = 0, float("-inf"), 0
    is_open = False
    for at, state, succeeds in changes:
        assert not is_open or at - opened_at >= options.open_seconds
        assert state is (BreakerState.half_open if is_open else BreakerState.closed)
        if succeeds:
            failures, attempts, is_open = 0, 0, False
            continue
        failures, attempts = failures + 1, attempts + 1 if is_open else 0
        opens = attempts >= options.half_open_attempts if is_open else failures >= options.threshold
        if opens:
            is_open, opened_at, attempts = True, at, 0


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=300))
def test_a_database_that_is_down_is_asked_a_bounded_number_of_times(pauses: list[float]) -> None:
    """Five minutes of failures cost the threshold and no more, however often the database would be queried."""
    steps = [(pause, False) for pause in pauses]
    asked = [at for at, _, _ in replayed(USUAL, steps) if at <= 300.0]
    assert len(asked) <= USUAL.threshold


def guarded(clock: Clock, changes: list[tuple[str, BreakerState]] | None = None) -> CircuitBreaker:
    heard = [] if changes is None else changes
    return CircuitBreaker("outbox", USUAL, clock, lambda name, state: heard.append((name, state)))


def fail(guard: CircuitBreaker, error: Exception) -> None:
    with pytest.raises(type(error)), guard.count_failures():
        raise error


def test_a_guard_counts_reads_and_writes_alike_and_tells_when_it_opens_and_closes() -> None:
    now, changes = [0.0], list[tuple[str, BreakerState]]()
    guard = guarded(lambda: now[0], changes)
    for _ in range(3):
        assert guard.allows()
        fail(guard, UnreachableError("The database is away."))
    assert (guard.allows(), guard.state) == (False, BreakerState.open)
    now[0] = 600.0
    assert (guard.allows(), guard.state) == (True, BreakerState.half_open)
    guard.succeed()
    assert guard.state is BreakerState.closed
    assert changes == [("outbox", BreakerState.open), ("outbox", BreakerState.closed)]


@pytest.mark.parametrize("error", [FencedError("Another one."), PermanentError("Never.")], ids=["fenced", "permanent"])
def test_an_answer_is_no_failure_of_the_database_even_if_it_is_a_bad_one(error: Exception) -> None:
    guard = guarded(lambda: 0.0)
    for _ in range(5):
        fail(guard, error)
    assert guard.state is BreakerState.closed


def test_a_read_that_succeeds_does_not_make_up_for_a_write_that_fails() -> None:
    """Only a whole round is a success, so a database that refuses all writes is left alone in the end."""
    guard = guarded(lambda: 0.0)
    for _ in range(3):
        with guard.count_failures():
            pass
        fail(guard, TransientError("Read only."))
    assert guard.state is BreakerState.open


def test_a_failure_counts_once_however_many_places_see_it() -> None:
    """A lease in the database is checked together with the registration, and each of them is guarded."""
    guard = guarded(lambda: 0.0)
    error = UnreachableError("The database is away.")
    for _ in range(2):
        with pytest.raises(UnreachableError), guard.count_failures(), guard.count_failures():
            raise error
    assert guard.allows(), "two failures, and the third opens it"
    fail(guard, error)
    assert not guard.allows()
