"""`inorder journal quarantine`, without servers: what it requests and what it prints."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from inorder.cli.journal import quarantine_app
from inorder.journal.replication.store_port import Quarantined
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import ConfigurationError
from inorder.model.journal import Key
from tests.unit.cli.services import NoLog, provide

RUNNER = CliRunner()
RECORD = Quarantined(Key("a", "journal"), 2, "It is damaged.", LogRecord(7, 0, b"a", b"\xff" * 100, ()))


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The arguments of each call."""
    asked: list[tuple[object, ...]] = []

    def listed(topic: str | None, id: str | None) -> list[Quarantined]:
        asked.append(("list", topic, id))
        return [RECORD] if topic != "empty" else []

    def discarded(key: Key, offset: int | None) -> int:
        asked.append(("discard", key, offset))
        return 0 if offset == 9 else 3

    def released(key: Key) -> int:
        asked.append(("release", key))
        return 4

    admin = SimpleNamespace(quarantined=listed, discard=discarded, release=released)
    provide(monkeypatch, journal_admin=admin, action_log=NoLog())
    return asked


def test_list_prints_where_a_record_is_and_why(store: list[tuple[object, ...]]) -> None:
    ran = RUNNER.invoke(quarantine_app, ["list", "--topic", "journal", "--id", "a", "--json"])
    assert store == [("list", "journal", "a")]
    (shown,) = json.loads(ran.stdout)
    assert shown | {"value": ""} == {
        "topic": "journal", "id": "a", "partition": 2, "offset": 7, "value": "", "reason": "It is damaged.",
    }  # fmt: skip
    assert shown["value"] == "\\xff" * 15
    table = RUNNER.invoke(quarantine_app, ["list"])
    assert "It is damaged." in table.stdout
    assert table.stderr == "Quarantine: 1 records of 1 journals.\n"


def test_an_empty_quarantine_says_so() -> None:
    ran = RUNNER.invoke(quarantine_app, ["list", "--topic", "empty"])
    assert (ran.stdout, ran.stderr) == ("", "Quarantine: 0 records of 0 journals.\n")


def test_release_says_how_many_were_applied(store: list[tuple[object, ...]]) -> None:
    assert json.loads(RUNNER.invoke(quarantine_app, ["release", "journal", "a", "--json"]).stdout) == {"released": 4}
    assert store == [("list", "journal", "a"), ("release", Key("a", "journal"))]


def test_discard_wants_an_offset_or_all(store: list[tuple[object, ...]]) -> None:
    for arguments in ([], ["--all", "--offset", "1"]):
        ran = RUNNER.invoke(quarantine_app, ["discard", "journal", "a", *arguments])
        assert (ran.exit_code, store) == (2, [])
        assert "give --all" in ran.stderr
    assert json.loads(RUNNER.invoke(quarantine_app, ["discard", "journal", "a", "--all", "--json"]).stdout) == {
        "discarded": 3
    }
    assert store == [("list", "journal", "a"), ("discard", Key("a", "journal"), None)]


def test_discarding_what_is_not_there_is_an_error() -> None:
    ran = RUNNER.invoke(quarantine_app, ["discard", "journal", "a", "--offset", "9"])
    assert isinstance(ran.exception, ConfigurationError)
