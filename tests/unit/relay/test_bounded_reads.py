"""No read returns more bytes than memory may hold, whatever the rows are, and nothing behind its end is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from inorder.model.message import OutboxRow
from inorder.relay.polling import PollingOptions
from inorder.relay.scan import BATCH_BYTES, bytes_of, fitting, next_limit
from inorder.relay.stores.outbox_store import ById, Complete, complete, most_a_row, split_columns, whole_page
from inorder.relay.stores.ports import LAST_ID, Page, Scan
from tests.conftest import Eventually
from tests.fakes.outbox import MemoryOutbox
from tests.fakes.topics import MemoryTopicStore
from tests.selection import few
from tests.unit.relay import polling_world
from tests.unit.relay.running import World, running
from tests.unit.relay.topics import Post

MEGABYTE = 1_000_000
BACKLOGS = [(500, 300_000), (2000, MEGABYTE)]


@dataclass
class Meter:
    """How many bytes each call of a store returned."""

    pages: list[int] = field(default_factory=list)

    def weigh(self, page: Page) -> Page:
        self.pages.append(sum(map(bytes_of, page.rows)))
        return page


class Weighed(MemoryOutbox):
    """An outbox in memory that notes how many bytes it returned."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def read(self, scan: Scan, limit: int) -> Page:
        return self._meter.weigh(super().read(scan, limit))

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        return self._meter.weigh(super().mark(leader_id, limit, above=above, max_bytes=max_bytes))

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        return self._meter.weigh(super().mark_again(leader_id, ids, max_bytes))

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        return self._meter.weigh(super().rows_to_purge(ids, max_bytes))


class WeighedTopics(MemoryTopicStore):
    """The same for messages of topics."""

    meter: Meter

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        return self.meter.weigh(super().read(topic, limit, max_bytes))


def publish_claimed(strategy: str, count: int, size: int, eventually: Eventually) -> tuple[Meter, int]:
    meter = Meter()
    world = World(Weighed(meter))
    world.commit(*[("t", b"k", bytes(size))] * count)
    with running(world, strategy=strategy, batch_size=10_000):
        eventually(lambda: world.outbox.count() == 0)
    return meter, len(world.sent())


def publish_polled(count: int, size: int) -> tuple[Meter, int]:
    meter = Meter()

    def weigh_reads(name: str, effect: Callable[[], Any]) -> Any:
        return meter.weigh(effect()) if name == "read" else effect()

    world = polling_world.World(PollingOptions(queue_wait=0.0, missing_wait=1.0), fate=weigh_reads)
    value = bytes(size)
    ids = [world.outbox.insert("t", "t", b"k", value) for _ in range(count)]
    world.outbox.end("t")
    world.run(lambda: world.tables.offset >= ids[-1])
    return meter, len(world.broker.records)


def publish_by_topic(count: int, size: int) -> tuple[Meter, int]:
    post = Post()
    store = WeighedTopics(post.tables)
    store.meter = Meter()
    post.write(*[("t", b"k", bytes(size))] * count)
    post.round(post.worker(store=store))
    return store.meter, len(post.sent())


@pytest.mark.parametrize("backlog", few(BACKLOGS, BACKLOGS[0]))
@pytest.mark.parametrize("strategy", ["drain", "mark-purge", "polling", "topic-lock"])
def test_a_backlog_of_large_rows_is_never_read_at_once(
    strategy: str, backlog: tuple[int, int], eventually: Eventually
) -> None:
    count, size = backlog
    match strategy:
        case "polling":
            meter, sent = publish_polled(count, size)
        case "topic-lock":
            meter, sent = publish_by_topic(count, size)
        case _:
            meter, sent = publish_claimed(strategy, count, size, eventually)
    assert sent == count
    assert max(meter.pages) <= BATCH_BYTES


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_key_parked_with_more_than_memory_holds_is_released_in_parts(strategy: str, eventually: Eventually) -> None:
    meter = Meter()
    world = World(Weighed(meter))
    world.outbox.insert("t", "t", b"k", b"bad", flaw="It is malformed.")
    world.commit(*(("t", b"k", b"%02d" % number + bytes(700)) for number in range(20)), ("t", b"other", b"fine"))
    with running(world, strategy=strategy, batch_bytes=1000):
        eventually(lambda: world.exceeded.rows)
        eventually(lambda: b"fine" in world.sent())
        world.commit(("t", b"other", b"fine too"))
        eventually(lambda: b"fine too" in world.sent())
        world.exceeded.discard(1)
        eventually(lambda: world.outbox.count() == 0)
    assert [int((row.value or b"")[:2]) for row in world.broker.records if row.key == b"k"] == list(range(20))
    assert max(meter.pages) <= 1000


def row(id: int, size: int = 0) -> OutboxRow:
    return OutboxRow(id, "t", None, bytes(size), (), None, None)


@dataclass
class Table:
    """Rows by id, as a statement returns them, and the ids that were read one by one."""

    rows: Mapping[int, int]
    gone: frozenset[int] = frozenset()
    loaded: list[int] = field(default_factory=list)

    def found(self, ids: Sequence[int], most: int) -> list[tuple[int, int]]:
        return [(id, self.rows[id]) if self.rows[id] <= most else (-id, 0) for id in ids]

    def complete(self, max_bytes: int, most: int, held: frozenset[int] = frozenset()) -> Complete:
        by_id = ById(lambda found: row(*found), self._load, self._sizes)
        return complete(self.found(list(self.rows), most), max_bytes, by_id, held)

    def _load(self, ids: Sequence[int], most: int) -> list[tuple[int, int]]:
        self.loaded += ids
        return self.found([id for id in ids if id not in self.gone], most)

    def _sizes(self, ids: Sequence[int]) -> dict[int, int]:
        return {id: self.rows[id] for id in ids if id not in self.gone}


def ids_of(found: Complete) -> list[int]:
    return [each.id for each in found.rows]


def test_a_page_of_small_rows_is_read_by_one_statement() -> None:
    table = Table({1: 10, 2: 20})
    assert ids_of(table.complete(100, 50)) == [1, 2]
    assert table.loaded == []


def test_large_rows_are_read_by_id_as_far_as_they_fit() -> None:
    table = Table({1: 10, 2: 60, 3: 20, 4: 70, 5: 5})
    found = table.complete(100, 50)
    assert (ids_of(found), found.rest, table.loaded) == ([1, 2, 3], [4, 5], [2])
    assert [len(each.value or b"") for each in found.rows] == [10, 60, 20]


def test_a_row_that_is_larger_than_all_may_be_is_read_alone() -> None:
    found = Table({1: 5000, 2: 1}).complete(100, 50)
    assert (ids_of(found), found.rest) == ([1], [2])


def test_rows_in_hand_come_back_without_their_content_and_fill_no_page() -> None:
    """A key may be parked with more rows than memory holds; a walk from the head must get past them."""
    table = Table({1: 90, 2: 90, 3: 30, 4: 90})
    found = table.complete(100, most_a_row(Scan(0, walk=True, held=frozenset({1, 2})), 10), frozenset({1, 2}))
    assert (ids_of(found), found.rest) == ([1, 2, 3], [4])
    assert [len(each.value or b"") for each in found.rows] == [0, 0, 30]
    assert not {1, 2}.intersection(table.loaded)


def test_a_walk_that_meets_only_rows_in_hand_reads_none_of_them() -> None:
    table = Table({1: 90, 2: 1})
    assert ids_of(table.complete(100, -1, frozenset({1, 2, 3}))) == [1, 2]
    assert table.loaded == []


def test_a_page_whose_rows_are_deleted_meanwhile_is_as_full_as_it_was() -> None:
    """Or the relay would believe that it knows every row up to the newest one."""
    found = Table({1: 60, 2: 60, 3: 1}, gone=frozenset({2})).complete(200, 50)
    assert (ids_of(found), found.gone) == ([1, 3], 1)
    assert whole_page(found, Scan(0), 3).is_full
    assert not whole_page(found, Scan(0), 4).is_full


@given(some.dictionaries(some.integers(1, 50), some.integers(0, 300)), some.integers(1, 500), some.integers(-1, 400))
def test_a_page_is_within_its_bound_and_names_all_that_it_leaves_out(
    sizes: dict[int, int], max_bytes: int, most: int
) -> None:
    found = Table(sizes).complete(max_bytes, most) if most < max_bytes else Table(sizes).complete(max_bytes, -1)
    assert len(found.rows) <= 1 or sum(map(bytes_of, found.rows)) <= max_bytes or not found.rest
    assert sorted([*ids_of(found), *found.rest]) == sorted(sizes)
    assert not found.rest or max(ids_of(found)) < min(found.rest)


@given(some.lists(some.integers(0, 300)), some.integers(1, 500))
def test_as_many_fit_as_possible_and_always_one(sizes: list[int], most: int) -> None:
    count = fitting(sizes, most)
    assert count >= min(1, len(sizes))
    assert count <= 1 or sum(sizes[:count]) <= most
    assert count == len(sizes) or sum(sizes[: count + 1]) > most


@pytest.mark.parametrize("size", [100, 1000, 10_000, MEGABYTE])
def test_the_limit_leaves_room_for_rows_that_are_larger_than_the_average(size: int) -> None:
    limit = next_limit(10_000, [row(1, size)] * 10, 10_000)
    assert limit == 10_000 or most_a_row(Scan(0, max_bytes=BATCH_BYTES), limit) >= 3 * size


def test_columns_are_divided_at_commas_outside_of_parentheses() -> None:
    assert split_columns("id, CAST(a AS text),\nCASE WHEN f(b, 1) THEN g(h(b), 2) END") == [
        "id",
        "CAST(a AS text)",
        "CASE WHEN f(b, 1) THEN g(h(b), 2) END",
    ]
