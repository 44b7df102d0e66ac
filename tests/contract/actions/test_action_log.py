"""The log of actions, in each database: an entry before the action, its outcome after it, pages by id."""

from __future__ import annotations

import pytest

from inorder.database.database import Database
from inorder.model.errors import ConfigurationError
from inorder.operate.actions import MOST_FATES, ActionLog, Actor, Outcome

ANN = Actor("ann", "page")


@pytest.fixture
def log(database: Database) -> ActionLog:
    return ActionLog(lambda: database, ANN)


def test_an_action_is_logged_before_it_is_done_and_completed_after(log: ActionLog) -> None:
    during: list[str] = []

    def act() -> int:
        during.extend(each.state for each in log.page())
        return 2

    target = {"code": "RECORD-001", "key": "ä\x00<script>"}
    id, result = log.record("exceeded retry", target, "limit raised", act, lambda n: Outcome({"put back": n}))
    assert (result, during) == (2, ["started"])
    entry = log.read(id)
    assert entry is not None
    assert (entry.actor, entry.origin, entry.action, entry.reason) == ("ann", "page", "exceeded retry", "limit raised")
    assert (entry.state, entry.result) == ("done", Outcome({"put back": 2}, []))
    assert "<script>" in entry.target
    assert entry.acted_at.tzinfo is not None


def test_a_failed_action_keeps_its_error_and_what_was_done_before(log: ActionLog) -> None:
    def act() -> list[int]:
        raise ConfigurationError("No such table.")

    with pytest.raises(ConfigurationError):
        log.record("dead letters retry", {}, "", act, lambda done: Outcome({"applied": len(done)}), lambda: [1, 2])
    [entry] = log.page()
    found = log.read(entry.id)
    assert found is not None
    assert (found.state, found.result.error, found.result.counts) == ("failed", "No such table.", {"applied": 2})


def test_pages_are_by_id_the_newest_first_and_long_outcomes_are_cut(log: ActionLog) -> None:
    fates = [{"id": number, "fate": "put back"} for number in range(MOST_FATES + 5)]
    ids = [
        log.record("exceeded retry", {}, str(number), lambda: 0, lambda _: Outcome({"put back": len(fates)}, fates)).id
        for number in range(3)
    ]
    assert [each.id for each in log.page(most=2)] == [ids[2], ids[1]]
    assert [each.id for each in log.page(before=ids[1])] == [ids[0]]
    entry = log.read(ids[0])
    assert entry is not None
    assert (len(entry.result.fates), entry.result.counts) == (MOST_FATES, {"put back": MOST_FATES + 5})
    assert log.read("none") is None


def test_without_a_log_a_command_goes_on_and_a_page_refuses() -> None:
    def nowhere() -> Database:
        raise ConfigurationError("database.url is not set.")

    done: list[int] = []
    tolerant = ActionLog(nowhere, Actor("ann", "command"), is_required=False)
    assert tolerant.record("x", {}, "", lambda: done.append(1), lambda _: Outcome()).id == ""
    with pytest.raises(ConfigurationError):
        ActionLog(nowhere, ANN).record("x", {}, "", lambda: done.append(2), lambda _: Outcome())
    assert done == [1]
