"""The first instance says how a table is relayed; every other one learns it, and a change is seen by all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.database.database import Database
from inorder.model.errors import ConfigurationError
from inorder.relay.stores.ports import Registration, Setup
from inorder.relay.stores.registry import SqlRegistry
from tests.contract.conftest import Databases

ONE = Setup("orders", "drain", 1)
FOUR = Setup("orders", "drain", 4)
EIGHT = Setup("orders", "drain", 8)
INSTANCES = 6


@pytest.fixture
def registry(database: Database) -> SqlRegistry:
    return SqlRegistry(database, "outbox")


def test_nothing_is_registered_before_the_first_instance_comes(registry: SqlRegistry) -> None:
    assert registry.read() is None


def test_the_first_instance_is_registered_as_it_is_set(registry: SqlRegistry) -> None:
    assert registry.register(ONE) == Registration("outbox", "orders", "drain", 1, epoch=1)
    assert registry.read() == registry.register(ONE)


def test_an_outbox_has_one_name_whoever_asks_and_no_two_have_the_same(
    registry: SqlRegistry, databases: Databases
) -> None:
    name = registry.identity()
    assert registry.identity() == SqlRegistry(databases(), "outbox").identity() == name
    assert SqlRegistry(databases(), "orders").identity() != name


def test_a_second_instance_learns_what_the_first_one_is_set_to(registry: SqlRegistry, databases: Databases) -> None:
    registry.register(ONE)
    found = SqlRegistry(databases(), "outbox").register(FOUR)
    assert found.setup == ONE != FOUR


def test_instances_that_come_at_once_all_learn_the_same(databases: Databases) -> None:
    together = threading.Barrier(INSTANCES)

    def register(shards: int) -> Setup:
        registry = SqlRegistry(databases(), "outbox")
        together.wait()
        return registry.register(Setup("orders", "drain", shards)).setup

    with ThreadPoolExecutor(INSTANCES) as pool:
        assert len(set(pool.map(register, range(1, INSTANCES + 1)))) == 1


def test_tables_are_apart(registry: SqlRegistry, databases: Databases) -> None:
    registry.register(ONE)
    assert SqlRegistry(databases(), "other_outbox").register(FOUR).setup == FOUR
    assert SqlRegistry(databases(), "OUTBOX").read() is None, "names compare letter by letter"


def test_a_change_that_began_is_seen_by_every_instance(registry: SqlRegistry, databases: Databases) -> None:
    registry.register(ONE)
    assert registry.begin_change(FOUR) == Registration("outbox", "orders", "drain", 1, epoch=2, target=FOUR)
    assert SqlRegistry(databases(), "outbox").register(ONE).target == FOUR


def test_a_finished_change_is_what_is_registered(registry: SqlRegistry) -> None:
    registry.register(ONE)
    registry.begin_change(Setup("sales", "mark-purge", 4))
    assert registry.finish_change() == Registration("outbox", "sales", "mark-purge", 4, epoch=2)


def test_a_change_is_resumed_by_beginning_it_again(registry: SqlRegistry, databases: Databases) -> None:
    registry.register(ONE)
    begun = registry.begin_change(FOUR)
    again = SqlRegistry(databases(), "outbox")
    assert again.begin_change(FOUR) == begun, "the epoch is counted once"
    assert again.finish_change().setup == FOUR


def test_another_change_meanwhile_is_refused_and_names_both(registry: SqlRegistry) -> None:
    registry.register(ONE)
    registry.begin_change(FOUR)
    with pytest.raises(ConfigurationError, match=r"shards 4; requested was .* shards 8") as refused:
        registry.begin_change(EIGHT)
    assert "inorder relay reshard" in refused.value.hint
    assert registry.finish_change().setup == FOUR


def test_only_one_of_two_changes_at_once_begins(registry: SqlRegistry, databases: Databases) -> None:
    registry.register(ONE)
    together = threading.Barrier(2)

    def change(target: Setup) -> Setup | None:
        mine = SqlRegistry(databases(), "outbox")
        together.wait()
        try:
            return mine.begin_change(target).target
        except ConfigurationError:
            return None

    with ThreadPoolExecutor(2) as pool:
        begun = [target for target in pool.map(change, (FOUR, EIGHT)) if target is not None]
    found = registry.read()
    assert found is not None
    assert (begun, found.epoch) == ([found.target], 2)


def test_finishing_twice_or_without_a_change_does_nothing(registry: SqlRegistry) -> None:
    registered = registry.register(ONE)
    assert registry.finish_change() == registered
    registry.begin_change(FOUR)
    assert registry.finish_change() == registry.finish_change()


def test_what_was_never_registered_cannot_be_changed(registry: SqlRegistry) -> None:
    with pytest.raises(ConfigurationError, match="'outbox'"):
        registry.begin_change(FOUR)
    with pytest.raises(ConfigurationError, match="No relay is registered"):
        registry.finish_change()


def test_a_closed_registry_may_be_asked_again(registry: SqlRegistry) -> None:
    registry.register(ONE)
    registry.close()
    registry.close()
    assert registry.register(FOUR).setup == ONE


def test_the_registrations_of_all_tables_are_told(registry: SqlRegistry, databases: Databases) -> None:
    assert registry.read_all() == []
    registry.register(ONE)
    other = SqlRegistry(databases(), "other_outbox").register(FOUR)
    assert sorted(found.outbox for found in registry.read_all()) == ["other_outbox", "outbox"]
    assert other in registry.read_all()
