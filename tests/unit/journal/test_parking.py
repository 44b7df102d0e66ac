"""A damaged record parks its journal: it and later ones wait in quarantine, other journals continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from inorder.journal.replication.actions import FOLLOWS
from inorder.journal.replication.job import release
from inorder.journal.subscription import Checkpoint, StoreScan, scan_store
from inorder.model.errors import ConfigurationError, DamagedRecordError, RejectedError
from tests.fakes import replica
from tests.unit.journal.replicated_topic import TOPIC, Topic, key
from tests.unit.journal.test_replicating import World

Damage = Callable[[Topic], None]
DAMAGES = {
    "header": lambda topic: topic.damaged_header("a"),
    "events": lambda topic: topic.damaged_events("a", 2),
}


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


@pytest.fixture
def world() -> World:
    return World()


def waiting(world: World) -> list[int]:
    return [each.offset for each in world.store.quarantined(TOPIC, "a")]


@pytest.mark.parametrize("together", [True, False])
def test_it_and_what_follows_waits_and_other_journals_go_on(
    world: World, damage: Damage, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic.append("a", 1)
    damage(world.topic)
    if not together:
        assert world.flush().rejected == 1
    world.topic.append("b", 1)
    world.topic.append("a", 3)
    world.topic.mark("a")
    world.topic.delete("a", 1)
    outcome = world.flush()
    assert (outcome.rejected, outcome.ignored) == ((3, 1) if together else (2, 1))
    assert (waiting(world), world.numbers("b"), world.store.offset(TOPIC, 0)) == ([1, 3, 5], [1], 5)
    found = world.store.quarantined()
    assert "cannot be read" in found[0].reason
    assert [each.reason for each in found[1:]] == [FOLLOWS, FOLLOWS]
    assert {record.message for record in caplog.records} == {"journal.parked"}


def test_a_walk_over_all_journals_meets_one_whose_first_record_is_damaged(world: World, damage: Damage) -> None:
    damage(world.topic)
    world.topic.append("b", 1)
    world.flush()
    assert (sorted(world.store.ids(TOPIC)), world.store.head(key("a"))) == (["a", "b"], None)
    start, met = Checkpoint(TOPIC, scan=StoreScan({0: 1})), list[DamagedRecordError]()
    walked = [each.key.id for each in scan_store(world.store, start, met.append) if each.record]
    assert (walked, [error.offset for error in met]) == (["b"], [0])


def test_readers_are_refused_and_the_store_ends_before_the_damage(world: World, damage: Damage) -> None:
    world.topic.append("a", 1)
    damage(world.topic)
    world.topic.append("a", 3)
    world.flush()
    with pytest.raises(DamagedRecordError, match=r"parked: its records from journal\[0\] offset 1") as raised:
        world.store.pointer(key("a"))
    assert raised.value.offset == 1
    head = world.store.head(key("a"))
    assert head is not None
    assert head.seq_nr == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_purge_frees_the_journal(world: World, damage: Damage, together: bool) -> None:
    world.topic.append("a", 1)
    damage(world.topic)
    if not together:
        world.flush()
    world.topic.append("a", 3)
    world.topic.purge("a")
    world.topic.append("a", 1, 2)
    world.flush()
    assert (waiting(world), world.numbers()) == ([], [1, 2])


def test_damage_after_a_purge_parks_the_next_life(world: World, damage: Damage) -> None:
    damage(world.topic)
    world.topic.purge("a")
    world.topic.append("a", 1)
    damage(world.topic)
    world.flush()
    assert waiting(world) == [3]


@pytest.mark.parametrize("together", [True, False])
def test_damage_under_a_later_delete_parks_in_any_chunking(world: World, together: bool) -> None:
    world.topic.append("a", 1)
    world.topic.damaged_events("a", 2)
    if not together:
        world.flush()
    world.topic.append("a", 3)
    world.topic.delete("a", 3)
    world.flush()
    assert waiting(world) == [1, 2, 3]


def test_a_key_without_a_journal_is_foreign_and_one_that_no_store_holds_is_parked(world: World) -> None:
    world.topic.append("a", 1)
    record = world.topic.records.pop()
    for id in (b"", b"a\0b"):
        world.topic.records.append(type(record)(TOPIC, id, record.value, record.headers, None, record.timestamp_ms))
    outcome = world.flush()
    assert (outcome.ignored, outcome.rejected) == (1, 1)
    assert [each.key.id for each in world.store.quarantined()] == ["a\\x00b"]


class TestRelease:
    @pytest.fixture(autouse=True)
    def parked(self, world: World) -> None:
        world.topic.append("a", 1)
        world.topic.damaged_events("a", 2)
        world.topic.append("a", 3)
        world.topic.delete("a", 1)
        world.flush()

    def test_it_changes_nothing_while_a_record_cannot_be_read(self, world: World) -> None:
        with pytest.raises(DamagedRecordError, match="offset 1"):
            release(world.store, key("a"), 3)
        assert waiting(world) == [1, 2, 3]

    def test_it_applies_all_in_the_order_of_their_offsets(self, world: World) -> None:
        world.topic.mend(1, "a", 2)
        damaged = world.store.quarantined()[0]
        readable = damaged.record._replace(value=world.topic.records[1].value)
        world.store._quarantine[key("a"), 0, 1] = replace(damaged, record=readable)
        assert release(world.store, key("a"), 3) == 3
        assert (waiting(world), world.numbers()) == ([], [2, 3])
        world.topic.append("a", 4)
        world.flush()
        assert world.numbers() == [2, 3, 4]

    def test_what_follows_a_record_that_was_given_up_is_applied_without_it(self, world: World) -> None:
        assert world.store.discard(key("a"), 1) == 1
        assert release(world.store, key("a"), 3) == 2
        assert world.numbers() == [3]

    def test_without_anything_in_quarantine_it_is_refused(self, world: World) -> None:
        with pytest.raises(ConfigurationError, match="nothing in quarantine"):
            release(world.store, key("b"), 3)

    def test_all_given_up_lets_the_journal_go_on_from_where_it_is(self, world: World) -> None:
        assert world.store.discard(key("a")) == 3
        world.topic.append("a", 9)
        world.flush()
        assert world.numbers() == [1, 9]


def test_what_the_store_refuses_parks_its_journal_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    original = replica._carry_out

    def refusing(rows: object, dated: object) -> None:
        if "seq_nr=666" in repr(dated):
            raise RejectedError("The store does not like it.")
        original(rows, dated)  # type: ignore[arg-type]  # whatever came is handed on

    monkeypatch.setattr(replica, "_carry_out", refusing)
    world.topic.append("a", 1)
    world.topic.append("b", 1)
    world.topic.append("a", 666)
    world.topic.append("a", 667)
    outcome = world.flush()
    assert (outcome.applied, outcome.rejected, waiting(world)) == (2, 2, [2, 3])
    assert world.numbers("b") == [1]
    assert [each.reason for each in world.store.quarantined()] == ["The store does not like it.", FOLLOWS]
