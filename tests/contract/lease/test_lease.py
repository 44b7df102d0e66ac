"""A lease is held by one instance at a time, and comes free by release or by running out."""

from __future__ import annotations

import pytest

from tests.conftest import Eventually
from tests.contract.lease.conftest import Leases


def test_only_one_instance_holds_a_lease(leases: Leases, eventually: Eventually) -> None:
    first, second = leases.open("first"), leases.open("second")
    eventually(first.acquire)
    for _ in range(3):
        assert not second.acquire()
        assert first.acquire(), "the holder keeps it"


def test_a_released_lease_goes_to_whoever_asks_next(leases: Leases, eventually: Eventually) -> None:
    first, second = leases.open("first"), leases.open("second")
    eventually(first.acquire)
    assert not second.acquire()
    first.release()
    eventually(second.acquire)
    assert not first.acquire()


def test_a_lease_may_be_released_twice_and_won_again(leases: Leases, eventually: Eventually) -> None:
    lease = leases.open("first")
    lease.release()
    eventually(lease.acquire)
    lease.release()
    lease.release()
    eventually(lease.acquire)


def test_a_waiting_instance_that_gives_up_takes_nothing_from_the_holder(leases: Leases, eventually: Eventually) -> None:
    first, second, third = leases.open("first"), leases.open("second"), leases.open("third")
    eventually(first.acquire)
    assert not second.acquire()
    second.release()
    assert not third.acquire()
    assert first.acquire()


@pytest.mark.full
def test_the_lease_of_a_killed_process_goes_to_the_next_one(leases: Leases, eventually: Eventually) -> None:
    waiting = leases.open("waiting")
    with leases.holder_process() as process:
        assert not waiting.acquire()
        process.kill()
        eventually(waiting.acquire)


def test_leases_of_other_groups_are_apart(leases: Leases, eventually: Eventually) -> None:
    eventually(leases.open("first").acquire)
    eventually(leases.open("other", group=f"{leases.group}.other").acquire)


def test_whoever_waits_may_win_so_a_fenced_owner_may_wait(leases: Leases) -> None:
    assert leases.open("first").arbitrates()


def test_a_lease_that_ran_out_can_be_won_and_is_lost_to_its_old_holder(
    timed_leases: Leases, eventually: Eventually
) -> None:
    first, second = timed_leases.open("first", seconds=0.2), timed_leases.open("second")
    first.acquire()
    assert eventually(second.acquire)
    assert not first.acquire()


def test_releasing_what_another_won_meanwhile_frees_nothing(timed_leases: Leases, eventually: Eventually) -> None:
    first, second = timed_leases.open("first", seconds=0.2), timed_leases.open("second")
    first.acquire()
    eventually(second.acquire)
    first.release()
    assert not timed_leases.open("third").acquire()
