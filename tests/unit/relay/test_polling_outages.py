"""A polling relay whose database or broker is away: what it asks meanwhile, and how it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from inorder.model.breaker import BreakerOptions
from inorder.model.errors import FencedError, TransientError, UnreachableError
from inorder.relay.events import BreakerChanged
from inorder.relay.leadership.lease import NoLease
from tests.unit.relay.polling_world import OPTIONS, World

DATABASE = ("check", "offset", "missing", "parked", "settle", "read", "holders")


class Counted(NoLease):
    """A lease that counts what is asked of it."""

    def __init__(self) -> None:
        self.asked = self.released = 0

    def acquire(self) -> bool:
        self.asked += 1
        return True

    def release(self) -> None:
        self.released += 1


def down(world: World, until: float, names: tuple[str, ...] = DATABASE) -> None:
    """Makes questions to the database fail until then."""

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name in names and world.now < until:
            raise UnreachableError("The database is away.")
        return effect()

    world.fate = fate


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_broker_that_is_away_for_long_uses_up_no_attempts(is_fenced: bool) -> None:
    world = World(is_fenced=is_fenced)
    world.commit(("k", "1"), ("k", "2"))

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name in ("publish", "take_over") and world.now < 200.0:
            raise UnreachableError("The broker is away.")
        return effect()

    world.fate = fate
    world.run(seconds=300.0)
    assert (world.sent(), world.tables.exceeded) == (["1", "2"], {})
    assert not [event for event in world.events if isinstance(event, BreakerChanged)], "that is not the database"


def test_a_database_that_is_down_for_five_minutes_is_asked_a_few_times_and_the_relay_recovers_by_itself() -> None:
    """Nothing is asked while the breaker is open, not even for the lease, which another instance may have meanwhile."""
    lease = Counted()
    world = World(replace(OPTIONS, breaker=BreakerOptions(threshold=3, open_seconds=600.0)))
    world.commit(("k", "1"))
    down(world, until=300.0)
    world.run(lambda: world.now > 299.0, lease=lease, seconds=400.0)
    asked = [name for name in world.effects if name in DATABASE]
    assert len(asked) == 3
    assert (lease.asked <= 4, lease.released >= 1) == (True, True)
    loop = world.run(seconds=1000.0)
    assert (world.sent(), loop.progress.breakers) == (["1"], {"outbox": "closed", "missing": "closed"})


def test_an_open_breaker_closes_on_the_first_success_in_the_same_relay() -> None:
    world = World(replace(OPTIONS, breaker=BreakerOptions(threshold=3, open_seconds=600.0)))
    world.commit(("k", "1"))
    down(world, until=700.0)
    world.run(seconds=2000.0)
    changes = [(event.breaker, event.state) for event in world.events if isinstance(event, BreakerChanged)]
    assert changes == [("outbox", "open"), ("outbox", "open"), ("outbox", "closed")]
    assert 1200.0 < world.now < 1300.0


def test_a_database_that_refuses_only_writes_opens_the_breaker_too() -> None:
    world = World(is_fenced=True)
    world.commit(("k", "1"))
    down(world, until=300.0, names=("settle",))
    world.run(lambda: world.now > 299.0, seconds=400.0)
    assert Counter(world.effects)["settle"] == 3
    world.run(seconds=1000.0)
    assert world.sent() == ["1"], "published once: the marker names what was not settled"


def test_the_missing_daemon_rests_while_the_outbox_goes_on() -> None:
    """Its breaker counts its own questions; `parked` is asked by it alone once a term has begun."""
    world = World()
    world.refuses = lambda row: row.value == b"bad"
    world.commit(("k", "bad"))
    world.run(lambda: bool(world.tables.exceeded))
    begun = list[float]()

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name == "take_over":
            begun.append(world.now)
        if name == "parked" and begun and world.effects[-2] != "missing":
            raise UnreachableError("Only that table is away.")
        return effect()

    world.fate = fate
    start = world.now
    world.later[start + 100.0] = lambda: world.commit(("other", "1"))
    loop = world.run(lambda: world.sent() == ["1"], seconds=200.0)
    assert loop.progress.breakers == {"outbox": "closed", "missing": "open"}


def test_a_lease_in_the_database_that_cannot_be_asked_counts_as_the_database() -> None:
    class Away(Counted):
        def acquire(self) -> bool:
            super().acquire()
            raise UnreachableError("The database is away.")

    world, lease = World(), Away()
    loop = world.run(lambda: world.now > 250.0, lease=lease, lease_in_database=True, seconds=400.0)
    assert (lease.asked, loop.progress.breakers["outbox"]) == (3, "open")


def test_another_relay_that_moved_the_offset_ends_one_that_nobody_arbitrates() -> None:
    world = World(is_fenced=False)
    world.commit(("k", "1"))

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name == "settle":
            world.tables.offset = 7
        return effect()

    world.fate = fate
    with pytest.raises(FencedError, match="The offset is 7"):
        world.run(lambda: False, seconds=10.0)


def test_a_relay_that_is_stopped_in_the_middle_of_an_outage_leaves_everything_to_the_next_one() -> None:
    world = World()
    world.commit(("k", "1"), ("k", "2"))

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name == "publish":
            raise TransientError("The broker is away.")
        return effect()

    world.fate = fate
    world.run(lambda: world.now > 5.0)
    assert (world.tables.offset, world.tables.missing) == (0, {})
    world.fate = lambda _name, effect: effect()
    world.run()
    assert world.sent() == ["1", "2"]
