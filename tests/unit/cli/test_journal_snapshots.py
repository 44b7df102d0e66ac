"""inorder journal snapshot: a line of JSON in, lines of JSON out, and the message when there is none."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from inorder.model.journal import Event, Json
from tests.unit.cli.conftest import Ran, Run
from tests.unit.cli.services import provide
from tests.unit.journal.world import KEY, World, event

PLACE = KEY.topic, KEY.id


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Journals in memory, in the place of those on Kafka."""
    world = World()
    provide(monkeypatch, journals=world.journals)
    world.journal.append([event(seq_nr) for seq_nr in range(1, 6)])
    return world


@pytest.fixture
def save(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`inorder journal snapshot save` with this on stdin."""

    def save_text(text: str, *options: str) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return run("journal", "snapshot", "save", *PLACE, *options)

    return save_text


def shown(ran: Ran) -> Any:
    assert ran.code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_what_is_saved_is_loaded_and_can_be_saved_again(world: World, run: Run, save: Any) -> None:
    assert shown(save('{"seq_nr": 2, "payload": {"sum": 3}, "metadata": {"by": "me"}}', "--json")) == {
        "seq_nr": 2,
        "saved": True,
    }
    line = run("journal", "snapshot", "load", *PLACE).stdout
    found = json.loads(line)
    assert (found["seq_nr"], found["payload"], found["metadata"]) == (2, {"sum": 3}, {"by": "me"})
    assert found["timestamp"] == "2026-01-01T12:00:00+00:00"
    assert shown(save(line, "--json"))["saved"] is True
    assert len(world.journal.snapshots()) == 1


@pytest.mark.parametrize("payload", [b"\x00\xff", "text", Json("text"), Json(None), None, [1]], ids=repr)
def test_every_kind_of_payload_goes_there_and_back(world: World, run: Run, save: Any, payload: Any) -> None:
    saved = world.journal.save_snapshot(3, payload)
    line = run("journal", "snapshot", "load", *PLACE).stdout
    world.journal.delete_snapshots()
    assert save(line).code == 0
    assert world.journal.snapshot() == saved


def test_the_ones_that_fit(world: World, run: Run) -> None:
    for seq_nr in (1, 3, 5):
        world.journal.save_snapshot(seq_nr, "x")
    assert shown(run("journal", "snapshot", "load", *PLACE, "--to", "4"))["seq_nr"] == 3
    assert run("journal", "snapshot", "load", *PLACE, "--from", "6").stdout == ""
    assert run("journal", "snapshot", "load", *PLACE, "--before", "2026-01-01").stdout == ""
    assert shown(run("journal", "snapshot", "load", *PLACE, "--after", "2026-01-01T12:00:00"))["seq_nr"] == 5
    listed = shown(run("journal", "snapshot", "list", *PLACE, "--json"))
    assert [each["seq_nr"] for each in listed] == [5, 3, 1]
    assert run("journal", "snapshot", "list", *PLACE).stdout.splitlines()[0].split() == [
        "seq_nr",
        "timestamp",
        "origin",
    ]
    assert shown(run("journal", "snapshot", "delete", *PLACE, "--seq-nr", "3", "--json")) == {"deleted": 1}
    assert shown(run("journal", "snapshot", "delete", *PLACE, "--to", "4", "--json")) == {"deleted": 1}
    assert shown(run("journal", "snapshot", "delete", *PLACE, "--all", "--json")) == {"deleted": 1}
    assert "has no snapshot" in run("journal", "snapshot", "list", *PLACE).stderr


@pytest.mark.parametrize("options", [(), ("--all", "--to", "3"), ("--seq-nr", "1", "--all")], ids=" ".join)
def test_what_is_to_be_deleted_must_be_named_once(world: World, run: Run, options: tuple[str, ...]) -> None:
    world.journal.save_snapshot(1)
    ran = run("journal", "snapshot", "delete", *PLACE, *options)
    assert (ran.code, "give --all" in ran.stderr) == (2, True)
    assert len(world.journal.snapshots()) == 1


def test_one_that_is_too_old_is_told_and_not_saved(world: World, save: Any) -> None:
    for seq_nr in (2, 3, 4):
        world.journal.save_snapshot(seq_nr)
    ran = save('{"seq_nr": 1}', "--json")
    assert shown(ran) == {"seq_nr": 1, "saved": False}
    assert "has newer snapshots, as many as it keeps" in ran.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "stdin: it is not JSON"),
        ("[]", "stdin: '[]' is not an object"),
        ('{"seq_nr": 1, "tags": []}', "'tags' is not known"),
        ('{"payload": 1}', "seq_nr: None is not a sequence number"),
        ('{"seq_nr": 9}', "seq_nr: 9 is above 5, where the journal journal:account-1 ends"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_saved(world: World, save: Any, text: str, told: str) -> None:
    ran = save(text)
    assert (ran.code, ran.stdout) == (3, "")
    assert told in ran.stderr
    assert world.journal.snapshots() == []


def test_a_journal_is_read_from_its_snapshot(world: World, run: Run) -> None:
    world.journal.save_snapshot(4, {"sum": 10})
    lines = [json.loads(line) for line in run("journal", "read", *PLACE, "--from-snapshot").stdout.splitlines()]
    assert (lines[0]["snapshot"]["payload"], [line["seq_nr"] for line in lines[1:]]) == ({"sum": 10}, [5])
    world.journal.delete_snapshots()
    lines = [json.loads(line) for line in run("journal", "read", *PLACE, "--from-snapshot").stdout.splitlines()]
    assert [line["seq_nr"] for line in lines] == [1, 2, 3, 4, 5]
    refused = run("journal", "read", *PLACE, "--from-snapshot", "--to", "3")
    assert (refused.code, "leave --from and --to out" in refused.stderr) == (2, True)


def test_a_hole_is_told_with_the_way_out(world: World, run: Run) -> None:
    world.journal.save_snapshot(2)
    world.journal.append([Event(6)])
    world.journal.delete(4)
    ran = run("journal", "read", *PLACE, "--from-snapshot")
    assert ran.code == 1
    assert "is at 2, but its events are deleted up to 4" in ran.stderr
    assert "inorder journal snapshot delete journal account-1 --to 4" in ran.stderr
