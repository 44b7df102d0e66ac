"""An owner stops by its own clock before the lease ends at the server, whatever happens to its requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inorder.relay.leadership.lease import LeaseClock, LeaseTimes

TIMES = LeaseTimes(lifetime=3.0, race=1.0, margin=0.5)


def test_nobody_leads_before_it_has_won() -> None:
    assert not LeaseClock(TIMES).leads(0.0)


def test_an_owner_leads_until_the_margin_before_the_end() -> None:
    clock = LeaseClock(TIMES).won(10.0)
    assert clock.leads(10.0)
    assert clock.leads(12.4)
    assert not clock.leads(12.5)
    assert clock.ends_at == 12.5


def test_an_extension_counts_from_its_sending() -> None:
    assert LeaseClock(TIMES).won(10.0).won(11.0).ends_at == 13.5


def test_an_answer_that_comes_out_of_turn_shortens_nothing() -> None:
    assert LeaseClock(TIMES).won(11.0).won(10.0).ends_at == 13.5


def test_a_no_ends_it_at_once() -> None:
    assert not LeaseClock(TIMES).won(10.0).lost().leads(10.0)


def test_a_failed_extension_is_tried_again_before_the_time_is_over() -> None:
    assert 0 < TIMES.retry < TIMES.margin
    assert LeaseTimes(lifetime=60, race=30, margin=10).retry == 2


# A request: how long after the last one it is sent, on its way there, and whether it arrives at all.
_requests = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.booleans()), max_size=30)


@given(_requests, st.floats(0, 100))
def test_our_end_comes_before_that_of_the_server(requests: list[tuple[float, float, bool]], start: float) -> None:
    """Every request is granted here: no other instance has the lease, or it is still ours."""
    ours, now, ends_at_server = LeaseClock(TIMES), start, float("-inf")
    for pause, on_the_way, arrives in requests:
        now += pause
        if arrives:
            ends_at_server = max(ends_at_server, now + on_the_way + TIMES.lifetime)
            ours = ours.won(now)
        assert ours.ends_at <= ends_at_server - TIMES.margin + 1e-9
