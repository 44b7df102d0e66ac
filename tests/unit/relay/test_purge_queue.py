"""What was published is purged in order, small batches together, and is never forgotten before that is certain."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.relay import purge_queue as module
from inorder.relay.purge_queue import ENOUGH_ROWS, MOST_ROWS, PurgeQueue
from tests.conftest import Eventually


class Table:
    """Notes what was purged in one go; may be held up, or fail."""

    def __init__(self) -> None:
        self.purges: list[list[int]] = []
        self.open = threading.Event()
        self.open.set()
        self.troubles: list[Exception] = []

    def purge(self, ids: Sequence[int]) -> None:
        assert self.open.wait(30)
        if self.troubles:
            raise self.troubles.pop()
        self.purges.append(list(ids))


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
            queue.add([id])
        assert queue.unpurged() == ((0, 0), *((id, id) for id in range(1, 10)))
    assert table.purges == [list(range(10))], "stopping purges what is left, at once"


def test_enough_rows_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch, eventually: Eventually) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 30.0)
    table = Table()
    with settling(table) as queue:
        queue.add(range(ENOUGH_ROWS))
        eventually(lambda: table.purges)
        eventually(lambda: queue.unpurged() == ())


def test_an_owner_that_waits_for_room_hurries_the_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 30.0)
    table = Table()
    with settling(table) as queue:
        for id in range(4):
            queue.add([id])
        queue.wait_below(4, 1000)
        assert table.purges == [[0, 1, 2, 3]]
        queue.add(range(10, 20))
        queue.wait_below(4, 10)
        assert len(table.purges) == 2


def test_a_purge_has_a_bound_that_only_a_single_batch_exceeds(eventually: Eventually) -> None:
    table = Table()
    table.open.clear()
    with settling(table) as queue:
        queue.add(range(MOST_ROWS + 5))
        queue.add(range(MOST_ROWS))
        queue.add([1])
        table.open.set()
        eventually(lambda: len(table.purges) == 3)
    assert [len(ids) for ids in table.purges] == [MOST_ROWS + 5, MOST_ROWS, 1]


def test_what_could_not_be_purged_stays_until_it_is(eventually: Eventually) -> None:
    table = Table()
    table.troubles = [TransientError("away"), TransientError("away")]
    table.open.clear()
    with settling(table) as queue:
        queue.take([1, 2])
        queue.add([1, 2])
        assert queue.unpurged() == ((1, 2),)
        table.open.set()
        eventually(lambda: queue.unpurged() == ())
        assert queue.in_hand() == frozenset()
    assert table.purges == [[1, 2]]


def test_a_purge_that_only_a_person_can_mend_ends_the_term(eventually: Eventually) -> None:
    table = Table()
    table.troubles = [ConfigurationError("no right to DELETE")]
    with settling(table) as queue:
        queue.add([1])
        eventually(lambda: not table.troubles)
        with pytest.raises(ConfigurationError, match="no right"):
            queue.wait_below(1, 1)
        assert queue.unpurged() == ((1, 1),)


def test_an_owner_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    table = Table()
    table.open.clear()
    with settling(table) as queue:
        queue.add([1, 2, 3])
        with pytest.raises(UnreachableError, match="3 published rows"):
            queue.wait_below(1, 1000)


def test_ids_that_left_another_way_are_no_longer_in_hand() -> None:
    with settling(Table()) as queue:
        queue.take([1, 2, 3])
        queue.forget([2])
        assert queue.in_hand() == {1, 3}
