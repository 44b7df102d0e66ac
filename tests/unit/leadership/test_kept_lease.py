"""A kept lease is extended beside the loop, and lost in time when it cannot be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.relay.leadership.lease import KeptLease, LeaseTimes
from tests.conftest import Eventually

QUICK = LeaseTimes(lifetime=1.0, race=0.05, margin=0.2)


def yes() -> bool:
    return True


@dataclass
class Server:
    """A lease whose answers a test decides; notes when it was asked, and by which thread."""

    answer: Callable[[], bool] = yes
    asked: list[tuple[float, str]] = field(default_factory=list)
    released: int = 0

    def acquire(self) -> bool:
        self.asked.append((time.monotonic(), threading.current_thread().name))
        return self.answer()

    def release(self) -> None:
        self.released += 1

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


@dataclass
class Hung:
    """An answer that never comes, until the test is over."""

    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> bool:
        self.over.wait(20)
        return True


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def lease(server: Server) -> Iterator[KeptLease]:
    kept = KeptLease(server, QUICK)
    yield kept
    server.answer = yes
    kept.release()


@pytest.fixture
def hung() -> Iterator[Hung]:
    found = Hung()
    yield found
    found.over.set()


def ends_within(lease: KeptLease, eventually: Eventually, seconds: float) -> None:
    begin = time.monotonic()
    eventually(lambda: not lease.holds(), timeout=10)
    assert time.monotonic() - begin < seconds


def test_a_lease_that_is_held_is_answered_from_memory_and_extended_by_another_thread(
    server: Server, lease: KeptLease, eventually: Eventually
) -> None:
    assert lease.acquire()
    assert all(lease.acquire() for _ in range(1000))
    eventually(lambda: len(server.asked) > 10)
    assert lease.acquire(), "it was extended beyond its first lifetime"
    assert {name for _, name in server.asked[1:]} == {"inorder-lease"}


def test_whoever_waits_asks_once_in_a_race_interval(server: Server, lease: KeptLease, eventually: Eventually) -> None:
    server.answer = lambda: False
    begin = time.monotonic()
    assert not lease.acquire()
    assert not any(lease.acquire() for _ in range(1000))
    eventually(lambda: (lease.acquire(), len(server.asked) > 4)[1])
    assert len(server.asked) <= 1 + (time.monotonic() - begin) / QUICK.race


def test_a_no_ends_leadership_with_the_next_extension(server: Server, lease: KeptLease, eventually: Eventually) -> None:
    assert lease.acquire()
    server.answer = lambda: False
    ends_within(lease, eventually, QUICK.lifetime - QUICK.margin)
    assert not lease.acquire()


def failing() -> bool:
    raise UnreachableError("away")


def test_failing_extensions_end_leadership_before_the_lease_ends(
    server: Server, lease: KeptLease, eventually: Eventually
) -> None:
    assert lease.acquire()
    server.answer = failing
    ends_within(lease, eventually, QUICK.lifetime)
    assert not lease.acquire()
    assert len(server.asked) > 3, "it was tried again and again"
    eventually(lambda: _raises(lease))


def _raises(lease: KeptLease) -> bool:
    try:
        lease.acquire()
    except UnreachableError:
        return True
    return False


def test_an_extension_that_hangs_ends_leadership_before_the_lease_ends(
    server: Server, lease: KeptLease, hung: Hung, eventually: Eventually
) -> None:
    assert lease.acquire()
    server.answer = hung
    ends_within(lease, eventually, QUICK.lifetime)
    assert not lease.acquire()
    asked = len(server.asked)
    assert not any(lease.acquire() for _ in range(100))
    assert len(server.asked) == asked, "no instance competes while a request hangs"
    hung.over.set()
    server.answer = yes
    eventually(lease.acquire)


def test_an_answer_that_came_too_late_wins_nothing(server: Server, lease: KeptLease) -> None:
    late = threading.Event()

    def slow() -> bool:
        return not late.wait(QUICK.lifetime)

    server.answer = slow
    assert not lease.acquire()
    assert not lease.holds()


def test_whoever_lost_the_lease_hears_so_before_it_wins_again(
    server: Server, lease: KeptLease, eventually: Eventually
) -> None:
    """Also where the lease is free at once: the loop has to drop what it had in hand."""
    assert lease.acquire()
    server.answer = lambda: False
    eventually(lambda: not lease.holds())
    server.answer = yes
    assert not lease.acquire()
    eventually(lease.acquire)


def test_a_refusal_that_a_person_must_mend_reaches_the_loop(
    server: Server, lease: KeptLease, eventually: Eventually
) -> None:
    def refused() -> bool:
        raise ConfigurationError("no right to the key")

    assert lease.acquire()
    server.answer = refused
    eventually(lambda: not lease.holds())
    assert not lease.acquire()
    with pytest.raises(ConfigurationError, match="no right"):
        lease.acquire()


def test_a_released_lease_is_extended_no_more_and_can_be_won_again(server: Server) -> None:
    lease = KeptLease(server, QUICK)
    assert lease.acquire()
    lease.release()
    asked = len(server.asked)
    assert server.released == 1
    assert not lease.holds()
    assert not [thread for thread in threading.enumerate() if thread.name == "inorder-lease"]
    assert lease.acquire()
    assert len(server.asked) == asked + 1
    lease.release()
    lease.release()


def test_releasing_does_not_wait_for_a_server_that_hangs(server: Server, hung: Hung, eventually: Eventually) -> None:
    lease = KeptLease(server, QUICK)
    assert lease.acquire()
    server.answer = hung
    asked = len(server.asked)
    eventually(lambda: len(server.asked) > asked)
    with pytest.raises(TransientError, match="expires by itself"):
        lease.release()
    assert server.released == 0


def test_being_fenced_is_judged_as_by_the_lease_itself(server: Server, lease: KeptLease) -> None:
    assert lease.arbitrates() is server.arbitrates()
