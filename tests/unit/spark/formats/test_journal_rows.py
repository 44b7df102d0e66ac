"""Rows of a DataFrame as events of journals."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from inorder.journal.formats import AppendCommit, AppendTask, group_events, hash_ids
from inorder.model.errors import GuaranteeError, ValidationError
from inorder.model.journal import Event
from tests.unit.journal.world import KEY, World


def batch(*rows: tuple[str | None, int | None], **more: pa.Array) -> pa.RecordBatch:
    ids, numbers = zip(*rows, strict=True)
    columns = {"id": pa.array(ids), "seq_nr": pa.array(numbers), "payload": pa.array([f"event {n}" for n in numbers])}
    return pa.RecordBatch.from_pydict(columns | more)


def run(task: AppendTask, records: pa.RecordBatch) -> int:
    return sum(append() for append in task.appends(group_events(records)))


def test_events_are_grouped_by_journal_in_their_order() -> None:
    found = group_events(batch(("a", 1), ("b", 5), ("a", 2)))
    assert {id: [event.seq_nr for event in events] for id, events in found.items()} == {"a": [1, 2], "b": [5]}


def test_payloads_are_text_bytes_or_nothing() -> None:
    for payload in (pa.array(["x"]), pa.array([b"x"], pa.binary()), pa.nulls(1)):
        [event] = group_events(batch(("a", 1), payload=payload))["a"]
        assert event.payload == payload[0].as_py()


def test_tags_are_optional() -> None:
    tags = pa.array([["x", "y", "x"], None])
    assert group_events(batch(("a", 1), ("a", 2), tags=tags))["a"] == [
        Event(1, "event 1", frozenset({"x", "y"})),
        Event(2, "event 2"),
    ]


@pytest.mark.parametrize(("row", "field"), [((None, 1), "id"), (("a", None), "seq_nr")])
def test_a_row_without_its_place_is_refused(row: tuple[str | None, int | None], field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field}: a row has none"):
        group_events(batch(row))


def test_a_task_appends_and_its_second_run_appends_nothing() -> None:
    world = World()
    for appended in (3, 0):
        task = AppendTask(world.journals, KEY.topic)
        assert run(task, batch((KEY.id, 1), ("other", 1))) + run(task, batch((KEY.id, 2))) == appended
        assert task.events == 3
    assert world.read() == [1, 2]
    assert [record.seq_nr for record in world.other("other").read()] == [1]


@pytest.mark.parametrize("batches", [[(("a", 2), ("a", 1))], [(("a", 2),), (("a", 2),)], [(("a", 2),), (("a", 1),)]])
def test_numbers_that_do_not_rise_are_refused(batches: list[tuple[tuple[str, int], ...]]) -> None:
    task = AppendTask(World().journals, KEY.topic)
    *good, bad = [batch(*rows) for rows in batches]
    for records in good:
        run(task, records)
    with pytest.raises(GuaranteeError, match="came after 2 in journal 'a'"):
        run(task, bad)


def test_tasks_tell_their_journals_by_hashes_that_differ() -> None:
    commit = AppendCommit(3, 0, hash_ids(["a", "b", "account-1"]))
    assert len(set(commit.journals())) == 3
    assert AppendCommit(1, 0, hash_ids(["b"])).journals() == [commit.journals()[1]]
