"""Every front end settles records by the same rules: a choice, a reason, the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.model.journal import Key
from inorder.operate.actions import Action, Logged, Outcome
from inorder.operate.set_aside import SetAside
from inorder.pipeline.dead_letters import Fate, RetryResult
from inorder.pipeline.stores.ports import SettledLetter

T = TypeVar("T")


class MemoryLog:
    """Entries with their outcomes."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, Any], str, Outcome]] = []

    def record(
        self,
        action: str,
        target: dict[str, Any],
        reason: str,
        act: Callable[[], T],
        describe: Callable[[T], Outcome],
        so_far: Callable[[], T] | None = None,
    ) -> Logged[T]:
        try:
            result = act()
        except UnreachableError:
            assert so_far is not None
            self.entries.append((action, target, reason, describe(so_far())))
            raise
        self.entries.append((action, target, reason, describe(result)))
        return Logged(str(len(self.entries)), result)


class Admin:
    """Settles what it is asked for; notes how."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.places: dict[int, str] = {}

    def settle_exceeded(self, action: str, reason: str, **wanted: Any) -> list[Any]:
        self.calls.append((action, reason, wanted))
        return [SimpleNamespace(returns_renumbered=False, id=wanted.get("id", 1), topic="t", key=b"k\xff")]

    def retried_exceeded(self, ids: list[int]) -> dict[int, str]:
        return {id: place for id, place in self.places.items() if id in ids}

    def retry(self, reason: str, **wanted: Any) -> Iterator[RetryResult]:
        self.calls.append(("retry", reason, wanted))
        yield RetryResult("p", f"t:0:{wanted.get('offset', 1)}", Fate.APPLIED)
        if wanted.get("code") == "cut":
            raise UnreachableError("The database is away.")
        yield RetryResult("p", "t:0:99", Fate.STALE, "newer")

    def quarantined(self, topic: str, id: str) -> list[Any]:
        assert (topic, id) == ("j", "a")
        return [SimpleNamespace(partition=2, offset=offset, reason="damaged") for offset in (5, 7, 8)]

    def release(self, key: Key) -> int:
        self.calls.append(("release", key))
        return 3

    def discard_listed(self, reason: str, most: int, **wanted: Any) -> tuple[int, list[SettledLetter]]:
        self.calls.append(("discard", reason, wanted))
        if wanted.get("offset") == 99:
            raise UnreachableError("The database is away.")
        letters = [SettledLetter("p", "t", 0, offset, "not-json", b"k\xff") for offset in (1, 2, 3)]
        return 3, letters[:most]

    def discard(self, *asked: Any, **wanted: Any) -> int:
        self.calls.append(("discard", *asked, wanted))
        return 3


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def service(log: MemoryLog, admin: Admin) -> SetAside:
    found: Any = admin
    kept: Any = log
    return SetAside(kept, lambda: found, lambda: found, lambda: found)


def test_nothing_is_done_to_everything_by_mistake_and_nothing_discarded_without_a_reason(
    service: SetAside, admin: Admin, log: MemoryLog
) -> None:
    for attempt in (
        lambda: service.settle_exceeded("retry", "because"),
        lambda: service.settle_exceeded("discard", " ", topic="t"),
        lambda: service.retry_letters("because"),
        lambda: service.discard_letters("", code="not-json"),
        lambda: service.discard_letters("because"),
    ):
        with pytest.raises(ConfigurationError):
            attempt()
    assert (admin.calls, log.entries) == ([], [])


def test_several_exceeded_rows_are_settled_in_the_order_of_their_ids(
    service: SetAside, admin: Admin, log: MemoryLog
) -> None:
    service.settle_exceeded("retry", "fixed", ids=[7, 3, 7])
    assert [call[2] for call in admin.calls] == [{"id": 3}, {"id": 7}]
    [(action, target, reason, outcome)] = log.entries
    assert (action, target, reason, outcome.counts) == ("exceeded retry", {"ids": [7, 3, 7]}, "fixed", {"put back": 2})
    assert outcome.fates[0] == {"id": 3, "topic": "t", "key": "k\\xff", "fate": "put back", "detail": ""}


def test_the_target_of_a_filter_is_readable(service: SetAside, log: MemoryLog) -> None:
    service.settle_exceeded("discard", "a test", key=b"k\xff")
    assert log.entries[0][1] == {"key": "k\\xff"}


def test_letters_are_named_by_their_ids(service: SetAside, admin: Admin, log: MemoryLog) -> None:
    service.retry_letters("fixed", ids=["t:0:5"], pipeline="p")
    kept = {"pipeline": "p", "topic": "t", "partition": 0, "offset": 5}
    assert admin.calls == [("retry", "fixed", {"through": "table", "settles_stale": False, **kept})]
    assert log.entries[0][3].counts == {"applied": 1, "stale": 1}
    with pytest.raises(ConfigurationError, match="not an ID"):
        service.discard_letters("fixed", ids=["t:x:5"])
    assert service.discard_letters("old", everything=True).result == 3


def test_an_id_with_its_pipeline_spares_the_letters_of_others(service: SetAside, admin: Admin) -> None:
    service.discard_letters("old", ids=["upsert:a/t:0:5", "upsert:b/c/t:0:5"])
    place = {"topic": "t", "partition": 0, "offset": 5}
    assert [each[-1] for each in admin.calls] == [place | {"pipeline": "upsert:a"}, place | {"pipeline": "upsert:b/c"}]


def test_a_discard_says_what_became_of_each_letter(
    service: SetAside, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.discard_letters("old", code="not-json").result == 3
    outcome = log.entries[0][3]
    assert outcome.counts == {"discarded": 3}
    assert [each["id"] for each in outcome.fates] == ["t:0:1", "t:0:2", "t:0:3"]
    assert outcome.fates[0] == {
        "id": "t:0:1", "pipeline": "p", "key": "k\\xff", "fate": "discarded", "detail": "not-json",
    }  # fmt: skip
    with pytest.raises(UnreachableError):
        service.discard_letters("old", ids=["t:0:1", "t:0:99"])
    assert log.entries[1][3].counts == {"discarded": 3}, "those before the error"
    monkeypatch.setattr("inorder.operate.set_aside.MOST_FATES", 4)
    service.discard_letters("old", ids=["t:0:1", "t:0:4"])
    assert (log.entries[2][3].counts, len(log.entries[2][3].fates)) == ({"discarded": 6}, 4)


def test_letters_that_were_settled_before_an_error_are_in_the_log(service: SetAside, log: MemoryLog) -> None:
    with pytest.raises(UnreachableError):
        service.retry_letters("fixed", code="cut")
    assert log.entries[0][3].counts == {"applied": 1}


def test_journals_are_logged_too(service: SetAside, log: MemoryLog) -> None:
    assert service.discard_journal(Key("a", "j"), 7, "broken").result == 3
    assert log.entries == [("quarantine discard", {"topic": "j", "id": "a", "offset": 7}, "broken", log.entries[0][3])]
    assert log.entries[0][3] == Outcome({"discarded": 3}), "one is listed: others came in between, and are only counted"


@pytest.mark.parametrize(
    ("act", "fate"), [(SetAside.release_journal, "released"), (SetAside.discard_journal, "discarded")]
)
def test_what_became_of_each_record_of_a_journal_is_logged(
    service: SetAside, log: MemoryLog, act: Callable[..., Logged[int]], fate: str
) -> None:
    assert act(service, Key("a", "j"), reason="fixed").result == 3
    outcome = log.entries[0][3]
    assert (outcome.counts, len(outcome.fates)) == ({fate: 3}, 3)
    assert outcome.fates[0] == {"id": "j:2:5", "topic": "j", "key": "a", "fate": fate, "detail": "damaged"}


def test_rows_that_were_put_back_are_followed_and_other_fates_are_final(service: SetAside, admin: Admin) -> None:
    def entry(action: str, *fates: str, more: int = 0) -> Action:
        kept = [{"id": id, "fate": fate} for id, fate in enumerate(fates)]
        outcome = {"counts": Counter(fates) + Counter({"put back": more}), "fates": kept, "error": ""}
        return Action("1", datetime.now(UTC), "ann", "page", action, "{}", "why", "done", json.dumps(outcome))

    admin.places = {0: "arrived", 1: "waiting", 2: "refused again"}
    new = "put back under a new id"
    now = service.follow_up(entry("exceeded retry", *["put back"] * 4, new, more=7))
    assert now.counts == {"arrived": 1, "waiting": 1, "refused again": 1, "put back": 1 + 7, new: 1}
    assert [each["fate"] for each in now.fates] == ["arrived", "waiting", "refused again", "put back", new]
    assert service.follow_up(entry("exceeded discard", "discarded")).counts == {"discarded": 1}
    assert service.follow_up(entry("dead letters retry", "applied", "stale")).counts == {"applied": 1, "stale": 1}
