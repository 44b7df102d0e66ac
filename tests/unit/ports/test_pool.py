"""A pool lends each thing to one user at a time, and keeps what was not harmed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.database.pool import IDLE_SECONDS, Pool
from inorder.model.errors import TransientError


class Things:
    """Opens numbers and remembers which were closed."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed: list[int] = []
        self.now = 0.0
        self.pool = Pool(self._open, self.closed.append, lambda: self.now)

    def _open(self) -> int:
        self.opened += 1
        return self.opened


@pytest.fixture
def things() -> Things:
    return Things()


def test_what_came_back_is_lent_again(things: Things) -> None:
    for _ in range(3):
        with things.pool.lent() as thing:
            assert thing == 1
    assert (things.opened, things.closed, things.pool.idle) == (1, [], 1)


def test_two_users_at_once_have_one_each(things: Things) -> None:
    with things.pool.lent() as first, things.pool.lent() as second:
        assert {first, second} == {1, 2}
    assert things.pool.idle == 2


def test_what_failed_does_not_come_back(things: Things) -> None:
    with pytest.raises(ValueError, match="broken"), things.pool.lent():
        raise ValueError("broken")
    assert (things.closed, things.pool.idle) == ([1], 0)


def test_a_reader_that_stops_early_gives_its_thing_back(things: Things) -> None:
    def reading() -> Iterator[int]:
        with things.pool.lent() as thing:
            yield thing
            yield thing

    reader = reading()
    assert next(reader) == 1
    reader.close()  # type: ignore[attr-defined]  # a generator has it
    assert (things.closed, things.pool.idle) == ([], 1)


def test_what_nobody_used_for_long_is_closed_when_another_comes_back(things: Things) -> None:
    with things.pool.lent(), things.pool.lent():
        pass
    things.now = IDLE_SECONDS + 1
    with things.pool.lent() as thing:
        assert thing in (1, 2)
    assert things.closed == [3 - thing]


def test_a_closed_pool_lends_nothing_and_closes_what_comes_back(things: Things) -> None:
    with things.pool.lent():
        things.pool.close()
        things.pool.close()
        assert things.closed == []
    assert things.closed == [1]
    with pytest.raises(TransientError, match="closed"), things.pool.lent():
        pass


def test_every_loan_is_told_however_it_ends(things: Things) -> None:
    told: list[tuple[float, float]] = []

    def open_slowly() -> int:
        things.now += 2.0
        return 1

    pool = Pool(
        open_slowly, things.closed.append, lambda: things.now, lambda taking, using: told.append((taking, using))
    )
    with pool.lent():
        things.now += 3.0
    with pytest.raises(ValueError, match="broken"), pool.lent():
        raise ValueError("broken")
    assert told == [(2.0, 3.0), (0.0, 0.0)]


def test_no_more_are_open_than_the_limit_and_others_wait_for_one() -> None:
    opened, open_now, most_open, lock = [0], [0], [0], threading.Lock()

    def open_one() -> int:
        with lock:
            opened[0] += 1
        return opened[0]

    pool: Pool[int] = Pool(open_one, lambda _: None, most=3)

    def use(number: int) -> None:
        with pool.lent(60):
            with lock:
                open_now[0] += 1
                most_open[0] = max(most_open[0], open_now[0])
            with lock:
                open_now[0] -= 1
        if number % 3 == 0:
            with pytest.raises(KeyError), pool.lent(60):
                raise KeyError  # what fails is closed, and makes room

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(use, range(60)))
    assert 1 <= most_open[0] <= 3


def test_who_waits_too_long_for_one_is_told_so() -> None:
    pool: Pool[int] = Pool(lambda: 1, lambda _: None, most=1)
    with pool.lent(), pytest.raises(TransientError, match="All 1 are in use"), pool.lent(0.01):
        pass
    with pool.lent(0.01):
        pass


def test_one_that_cannot_be_opened_takes_no_place() -> None:
    def open_one() -> int:
        raise TransientError("away")

    pool: Pool[int] = Pool(open_one, lambda _: None, most=1)
    for _ in range(2):
        with pytest.raises(TransientError, match="away"), pool.lent(0.01):
            pass
