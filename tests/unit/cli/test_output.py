"""What commands print: nothing that a terminal would execute, errors as JSON where data is JSON, a verdict first."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from inorder.cli.output import say, show_fields, show_json, show_table
from inorder.database.schema_plan import read_change
from inorder.model.printable import escape_controls
from inorder.operate.status import verdict
from tests.unit.cli.conftest import Run

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\r\n\tc"


def test_no_control_character_of_a_key_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([("key", "reason"), (HOSTILE, "x\ny")])
    show_json({"key": HOSTILE})
    say(f"It has {HOSTILE}")
    out, err = capsys.readouterr()
    assert not {each for each in out if not each.isprintable()} - {"\n"}
    assert not {each for each in err if not each.isprintable()} - {"\n", "\t"}
    assert json.loads(out.splitlines()[-1]) == {"key": HOSTILE}, "JSON says the same"
    assert "\\x1b]0;owned\\x07" in out
    assert len(out.splitlines()) == 3


def test_ordinary_text_is_not_changed() -> None:
    text = "Grüße, 日本語, 🦀, a\\x1b"
    assert escape_controls(text) == text


def test_a_table_is_wrapped_on_a_terminal_and_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("setting", "value"), ("relay.group", "x" * 100)]
    show_table(rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "".join(lines).count("x") == 100


def test_an_error_is_json_where_json_is_asked_for(run: Run) -> None:
    Path("inorder.toml").write_text("[relay]\nbach_size = 1\n")
    ran = run("config", "show", "--json")
    error = json.loads(ran.stderr)["error"]
    assert (ran.code, error["code"], error["exit_code"]) == (3, "CONFIG-001", 3)
    assert "relay.batch_size" in error["message"]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "ok"),
        ({"relay": {"exceeded": 0, "waiting": 7}, "pipeline": {"dead_letters": 0}}, "ok"),
        (
            {"relay": {"exceeded": 2}, "pipeline": {"dead_letters": 1}, "journal": {"parked": 0}},
            "needs attention: 2 exceeded records, 1 dead letters",
        ),
        ({"relay": {"error": "No answer.", "exit_code": 4}}, "relay cannot be read: No answer."),
    ],
)
def test_the_verdict_says_what_waits_for_somebody(parts: dict[str, dict[str, object]], said: str) -> None:
    assert verdict(parts) == said


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ('CREATE TABLE IF NOT EXISTS "outbox" (\n id bigint\n)', "created table outbox"),
        ("CREATE UNIQUE INDEX IF NOT EXISTS outbox_key ON outbox (key)", "created index outbox_key on outbox"),
        (
            "DO $$\nBEGIN\n  CREATE INDEX IF NOT EXISTS letter_code ON letter (code);\nEND\n$$",
            "created index letter_code on letter",
        ),
        (
            (
                "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_attribute WHERE attname = 'b') THEN "
                "ALTER TABLE sales.outbox ADD COLUMN IF NOT EXISTS a text, ADD COLUMN IF NOT EXISTS b text; END IF"
            ),
            "added columns to outbox: a, b",
        ),
    ],
)
def test_an_installed_statement_is_a_few_words(statement: str, said: str) -> None:
    assert str(read_change(statement)) == said


def test_lists_and_missing_values_are_words_and_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    show_fields(
        {"owners": ["host/1"], "term": None, "phantoms": [], "terms": [None], "is_deleted": False}, as_json=False
    )
    assert capsys.readouterr().out.split("\n") == [
        "owners      host/1",
        "term        none",
        "phantoms    none",
        "terms       none",
        "is_deleted  false",
        "",
    ]
