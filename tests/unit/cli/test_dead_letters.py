"""inorder dead-letters turns its options into a filter, calls one service and prints what it says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from inorder.pipeline.dead_letters import Fate, RetryResult
from inorder.pipeline.stores.ports import SettledLetter, StoredLetter
from tests.unit.cli.conftest import Run
from tests.unit.cli.services import NoLog, provide

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LETTER = StoredLetter("upsert:messages", "orders", 3, 42, 0, "not-json", "it is {", b"k\xff", b"{", None, AT)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fakes of the services, which record how they are called."""
    noted: dict[str, Any] = {"letters": [LETTER]}

    def listed(limit: int, **wanted: Any) -> list[StoredLetter]:
        noted.update(limit=limit, wanted=wanted)
        return list(noted["letters"])

    def retried(reason: str, **asked: Any) -> Iterator[RetryResult]:
        noted.update(reason=reason, retried=asked)
        yield RetryResult("upsert:messages", "orders:3:42", Fate.STALE, "Its row has generation 0, offset 50.")
        yield RetryResult("upsert:messages", "orders:3:43", Fate.APPLIED)

    def discarded(reason: str, _most: int, **wanted: Any) -> tuple[int, list[SettledLetter]]:
        noted.update(reason=reason, discarded=wanted)
        return 7, []

    letters = SimpleNamespace(
        read=listed,
        count=lambda **_: {"not-json": 4, "wrong-type": 1} if noted["letters"] else {},
        retry=retried,
        discard_listed=discarded,
    )
    provide(monkeypatch, dead_letters=letters, action_log=NoLog())
    return noted


def test_list_prints_a_line_for_each_letter_and_how_many_there_are(run: Run, calls: dict[str, Any]) -> None:
    ran = run("dead-letters", "list")
    assert ran.code == 0
    assert ran.stdout.split() == [
        "id", "pipeline", "key", "code", "recorded_at", "detail",
        "orders:3:42", "upsert:messages", "k\\xff", "not-json", "2026-01-02T03:04:05+00:00", "it", "is", "{",
    ]  # fmt: skip
    assert "Dead letters: 5 (4 not-json, 1 wrong-type). The first 1 are printed" in ran.stderr
    assert (calls["limit"], calls["wanted"]) == (100, {})


def test_list_passes_every_filter_on(run: Run, calls: dict[str, Any]) -> None:
    options = {"pipeline": "p", "topic": "t", "partition": "0", "offset": "7", "code": "c", "key": "ü", "limit": "5"}
    ran = run("dead-letters", "list", *(word for name, text in options.items() for word in (f"--{name}", text)))
    assert ran.code == 0
    assert calls["wanted"] == {
        "pipeline": "p", "topic": "t", "partition": 0, "offset": 7, "code": "c", "key": "ü".encode(),
    }  # fmt: skip
    assert calls["limit"] == 5


def test_list_without_letters_says_so(run: Run, calls: dict[str, Any]) -> None:
    calls["letters"] = []
    ran = run("dead-letters", "list", "--json")
    assert (ran.stdout.strip(), ran.stderr.strip()) == ("[]", "Dead letters: none.")


def test_show_prints_one_letter_with_its_bytes(run: Run, calls: dict[str, Any]) -> None:
    ran = run("dead-letters", "show", "orders:3:42", "--json")
    shown = json.loads(ran.stdout)
    assert (shown["id"], shown["value"], shown["record_timestamp"]) == ("orders:3:42", "{", None)
    assert base64.b64decode(shown["key_base64"]) == b"k\xff"
    assert calls["wanted"] == {"topic": "orders", "partition": 3, "offset": 42}
    assert "key_base64" not in run("dead-letters", "show", "orders:3:42").stdout


def test_show_of_a_letter_that_is_not_there_is_an_error(run: Run, calls: dict[str, Any]) -> None:
    calls["letters"] = []
    ran = run("dead-letters", "show", "orders:3:42")
    assert ran.code == 3
    assert "There is no dead letter orders:3:42." in ran.stderr


def test_show_asks_for_the_pipeline_where_two_have_the_letter(run: Run, calls: dict[str, Any]) -> None:
    calls["letters"] = [LETTER, LETTER]
    ran = run("dead-letters", "show", "orders:3:42")
    assert ran.code == 3
    assert "--pipeline NAME" in ran.stderr


@pytest.mark.parametrize("wrong", ["orders", "orders:3", "orders:x:1", "orders:3:-1", "3:42"])
def test_an_id_of_another_form_is_refused(run: Run, calls: dict[str, Any], wrong: str) -> None:
    ran = run("dead-letters", "show", wrong)
    assert ran.code == 2
    assert "TOPIC:PARTITION:OFFSET" in ran.stderr


@pytest.mark.parametrize("command", [("retry",), ("discard", "--reason", "x")])
def test_what_is_meant_must_be_said(run: Run, calls: dict[str, Any], command: tuple[str, ...]) -> None:
    ran = run("dead-letters", *command)
    assert ran.code == 2
    assert "--all" in ran.stderr
    assert run("dead-letters", *command, "a:0:1", "--topic", "a").code == 2, "an ID names the topic"
    assert "retried" not in calls
    assert "discarded" not in calls


def test_retry_prints_the_fate_of_each_letter(run: Run, calls: dict[str, Any]) -> None:
    ran = run("dead-letters", "retry", "orders:3:42", "--reason", "mended")
    assert ran.code == 0
    assert [line.split()[:3] for line in ran.stdout.splitlines()] == [
        ["id", "pipeline", "fate"],
        ["orders:3:42", "upsert:messages", "stale"],
        ["orders:3:43", "upsert:messages", "applied"],
    ]
    assert "retry: 2 (1 stale, 1 applied)." in ran.stderr
    assert calls["reason"] == "mended"
    assert calls["retried"] == {
        "through": "table", "settles_stale": False, "topic": "orders", "partition": 3, "offset": 42,
    }  # fmt: skip


def test_retry_takes_the_way_and_the_fate_of_stale_letters(run: Run, calls: dict[str, Any]) -> None:
    ran = run("dead-letters", "retry", "--all", "--through", "topic", "--settle-stale", "--json")
    assert [one["fate"] for one in json.loads(ran.stdout)] == ["stale", "applied"]
    assert calls["retried"] == {"through": "topic", "settles_stale": True}


def test_discard_wants_a_reason(run: Run, calls: dict[str, Any]) -> None:
    ran = run("dead-letters", "discard", "--all")
    assert ran.code == 2
    assert "--reason" in ran.stderr
    ran = run("dead-letters", "discard", "--all", "--reason", "garbage", "--json")
    assert (json.loads(ran.stdout), ran.stderr.strip()) == ({"discarded": 7}, "discard: 7 letters.")
    assert (calls["reason"], calls["discarded"]) == ("garbage", {})
    assert run("dead-letters", "discard", "upsert:m/orders:0:1", "--reason", "garbage").code == 0
    assert calls["discarded"] == {"pipeline": "upsert:m", "topic": "orders", "partition": 0, "offset": 1}


@pytest.mark.parametrize("command", ["retry", "discard"])
def test_a_dry_run_prints_what_is_meant_and_does_nothing(run: Run, calls: dict[str, Any], command: str) -> None:
    ran = run("dead-letters", command, "--code", "not-json", "--reason", "x", "--dry-run")
    assert ran.code == 0
    assert "orders:3:42" in ran.stdout
    assert "nothing was done" in ran.stderr
    assert calls["wanted"] == {"code": "not-json"}
    assert "retried" not in calls
    assert "discarded" not in calls


def test_a_retry_after_which_all_letters_are_still_rejected_has_failed(
    run: Run, calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def retried(_reason: str, **_: Any) -> Iterator[RetryResult]:
        yield RetryResult("upsert:messages", "orders:3:42", Fate.REJECTED, "It is no JSON.")

    provide(monkeypatch, dead_letters=SimpleNamespace(retry=retried))
    assert run("dead-letters", "retry", "--all").code == 1
