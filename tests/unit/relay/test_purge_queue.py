"""What was published is purged in order, small batches together, and is never forgotten before that is certain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay import purge_queue as module
from inorder.relay.marker import PublishedBatch
from inorder.relay.purge_queue import ENOUGH_ROWS, MOST_ROWS, PurgeQueue, purge_rows
from inorder.relay.stores.ports import LAST_ID, Page, Scan
from tests.conftest import Eventually
from tests.fakes.outbox import MemoryOutbox
from tests.unit.relay.running import World, loop_of


class Table:
    """Notes what was purged in one go; may be held up, or fail."""

    def __init__(self) -> None:
        self.purges: list[list[int]] = []
        self.proofs: list[Mapping[int, int]] = []
        self.open = threading.Event()
        self.open.set()
        self.troubles: list[Exception] = []

    def purge(self, ids: Sequence[int], proofs: Callable[[], Mapping[int, int]], /) -> None:
        assert self.open.wait(30)
        if self.troubles:
            raise self.troubles.pop()
        self.purges.append(list(ids))
        self.proofs.append(proofs())


def batch(*ids: int) -> PublishedBatch:
    return PublishedBatch.of([OutboxRow(id, "t", b"k", b"%d" % id, (), None, None) for id in ids])


def unpurged(queue: PurgeQueue) -> list[int]:
    return [id for each in queue.unpurged() for id in each.ids]


@contextmanager
def settling(table: Table) -> Iterator[PurgeQueue]:
    queue = PurgeQueue(table.purge, retry_seconds=0.001)
    queue.start()
    try:
        yield queue
    finally:
        table.open.set()
        queue.stop()


def test_small_batches_are_purged_together_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 30.0)
    table = Table()
    with settling(table) as queue:
        for id in range(10):
            queue.add(batch(id))
        assert unpurged(queue) == list(range(10))
    assert table.purges == [list(range(10))], "stopping purges what is left, at once"


def test_enough_rows_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch, eventually: Eventually) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 30.0)
    table = Table()
    with settling(table) as queue:
        queue.add(batch(*range(ENOUGH_ROWS)))
        eventually(lambda: table.purges)
        eventually(lambda: queue.unpurged() == ())


def test_an_owner_that_waits_for_room_hurries_the_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 30.0)
    table = Table()
    with settling(table) as queue:
        for id in range(4):
            queue.add(batch(id))
        queue.wait_below(4, 1000)
        assert table.purges == [[0, 1, 2, 3]]
        queue.add(batch(*range(10, 20)))
        queue.wait_below(4, 10)
        assert len(table.purges) == 2


def test_a_purge_has_a_bound_that_only_a_single_batch_exceeds(eventually: Eventually) -> None:
    table = Table()
    table.open.clear()
    with settling(table) as queue:
        queue.add(batch(*range(MOST_ROWS + 5)))
        queue.add(batch(*range(MOST_ROWS)))
        queue.add(batch(1))
        table.open.set()
        eventually(lambda: len(table.purges) == 3)
    assert [len(ids) for ids in table.purges] == [MOST_ROWS + 5, MOST_ROWS, 1]


def test_what_could_not_be_purged_stays_until_it_is(eventually: Eventually) -> None:
    table = Table()
    table.troubles = [TransientError("away"), TransientError("away")]
    table.open.clear()
    with settling(table) as queue:
        queue.take([1, 2])
        queue.add(batch(1, 2))
        assert unpurged(queue) == [1, 2]
        table.open.set()
        eventually(lambda: queue.unpurged() == ())
        assert queue.in_hand() == frozenset()
    assert table.purges == [[1, 2]]
    assert table.proofs == [dict(zip([1, 2], batch(1, 2).proofs, strict=True))], "the session may be another one"


class Purging(MemoryOutbox):
    """Notes which rows are read before they are purged."""

    def __init__(self) -> None:
        super().__init__()
        self.read_before: list[list[int]] = []

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        self.read_before.append(list(ids))
        return super().rows_to_purge(ids, max_bytes)


def test_a_purge_goes_by_id_only_on_the_session_with_which_the_term_began() -> None:
    store = Purging()
    for _ in range(3):
        store.insert("a", "t", b"k", b"v")
    store.end("a")
    rows = store.read(Scan(above=0), 10).rows
    proofs = dict(zip([row.id for row in rows], PublishedBatch.of(rows).proofs, strict=True))
    session = store.session()
    assert purge_rows(store, session, [1], lambda: proofs) == 1
    assert store.read_before == []
    # The same rows on another server, without a purge that failed; and id 3 was given out again.
    store.go_back(2, server="another")
    store.insert("b", "t", b"k", b"other")
    store.end("b")
    assert purge_rows(store, session, [2, 3], lambda: proofs) == 1
    assert [row.value for row in store.read(Scan(above=0), 10).rows] == [b"other"]
    assert purge_rows(store, None, [3], lambda: proofs) == 0, "behind a pooler every purge goes by content"
    assert store.read_before == [[2, 3], [3]]


def test_a_session_that_is_lost_between_reading_and_deleting_deletes_nothing() -> None:
    class Losing(MemoryOutbox):
        def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
            rows = super().rows_to_purge(ids, max_bytes)
            self.go_back(0, server="another")
            self.insert("b", "t", b"k", b"other")
            self.end("b")
            return rows

    store = Losing()
    store.insert("a", "t", b"k", b"v")
    store.end("a")
    proofs = dict(zip([1], PublishedBatch.of(store.read(Scan(above=0), 10).rows).proofs, strict=True))
    with pytest.raises(UnreachableError):
        purge_rows(store, None, [1], lambda: proofs)
    assert [row.value for row in store.read(Scan(above=0), 10).rows] == [b"other"]


def test_rows_that_would_make_the_marker_too_large_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 30)
    table = Table()
    with settling(table) as queue:
        queue.add(batch(1, 3, 5, 7))
        queue.wait_below(100, 100)
        assert unpurged(queue) == []


def test_a_purge_that_only_a_person_can_mend_ends_the_term(eventually: Eventually) -> None:
    table = Table()
    table.troubles = [ConfigurationError("no right to DELETE")]
    with settling(table) as queue:
        queue.add(batch(1))
        eventually(lambda: not table.troubles)
        with pytest.raises(ConfigurationError, match="no right"):
            queue.wait_below(1, 1)
        assert unpurged(queue) == [1]


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_relay_whose_purges_the_database_refuses_ends_although_no_row_follows(
    strategy: str, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    class Refusing(MemoryOutbox):
        """Refuses the purge of published rows, once."""

        has_refused = False

        def purge(self, ids: Sequence[int], session: int | None = None) -> int:
            if ids and not self.has_refused:
                self.has_refused = True
                raise ConfigurationError("no right to DELETE")
            return super().purge(ids, session)

    world = World(Refusing())
    world.commit(("t", b"k", b"1"))
    loop, ended = loop_of(world, strategy=strategy), list[str]()

    def run() -> None:
        try:
            loop.run()
        except ConfigurationError as error:
            ended.append(error.message)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: ended == ["no right to DELETE"])
    finally:
        world.stop.set()
        thread.join()
    assert world.sent() == [b"1"]
    (found,) = [each for each in caplog.records if each.message == "relay.purge_failed"]
    assert (found.levelname, found.__dict__["code"]) == ("ERROR", ConfigurationError.code)


def test_an_owner_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    table = Table()
    table.open.clear()
    with settling(table) as queue:
        queue.add(batch(1, 2, 3))
        with pytest.raises(UnreachableError, match="3 published rows"):
            queue.wait_below(1, 1000)


def test_ids_that_left_another_way_are_no_longer_in_hand() -> None:
    with settling(Table()) as queue:
        queue.take([1, 2, 3])
        queue.forget([2])
        assert queue.in_hand() == {1, 3}
