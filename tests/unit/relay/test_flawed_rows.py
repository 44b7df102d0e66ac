"""A row that was written incorrectly is set aside with its reason at once, and nothing else is disturbed."""

from __future__ import annotations

import pytest

from tests.conftest import Eventually
from tests.unit.relay.running import World, malformed, running


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_malformed_row_is_exceeded_with_its_reason_without_being_sent(strategy: str, eventually: Eventually) -> None:
    world = World()
    world.commit(*(("t", b"other", b"%d" % number) for number in range(5)))
    world.outbox.put_back(malformed(100, "2 header names and 1 header value."))
    with running(world, strategy=strategy) as loop:
        eventually(lambda: world.outbox.count() == 0)
        _, exceeding = world.exceeded.rows[100]
    assert "2 header names and 1 header value." in exceeding.reason
    assert world.sent() == [b"0", b"1", b"2", b"3", b"4"]
    assert loop.progress.exceeded == 1


def test_its_key_is_parked_like_that_of_any_bad_record(eventually: Eventually) -> None:
    world = World()
    world.outbox.insert("t", "t", b"k", b"bad", flaw="headers are not JSON.")
    world.commit(("t", b"k", b"behind"))
    with running(world):
        eventually(lambda: world.exceeded.rows)
        world.commit(("t", b"other", b"fine"))
        eventually(lambda: world.sent() == [b"fine"])
    assert world.exceeded.parked() == {("t", b"k"): (1,)}


def test_a_row_without_a_topic_parks_nothing(eventually: Eventually) -> None:
    world = World()
    world.outbox.put_back(malformed(1, "the topic is null.", topic=""))
    world.outbox.put_back(malformed(2, "the topic is null.", topic=""))
    with running(world):
        eventually(lambda: len(world.exceeded.rows) == 2)
    assert world.exceeded.parked() == {}


def test_with_the_policy_block_it_stands_in_its_place_until_somebody_repairs_it(eventually: Eventually) -> None:
    world = World()
    world.outbox.put_back(malformed(1, "headers are not JSON."))
    world.outbox.put_back(malformed(2, "", key=b"behind"))
    with running(world, policy=lambda _topic: "block") as loop:
        eventually(lambda: "headers are not JSON" in loop.progress.last_error)
        assert world.sent() == []
        world.outbox.put_back(malformed(1, ""))
        eventually(lambda: len(world.sent()) == 2)
    assert not world.exceeded.rows
