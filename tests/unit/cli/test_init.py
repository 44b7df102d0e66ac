"""`inorder init` writes settings that pass `inorder config check`, and overwrites nothing."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from inorder.embedded.stack import settings_text
from inorder.settings import Settings
from tests.unit.cli.conftest import Run


def test_the_defaults_pass_the_check_and_name_the_next_commands(run: Run) -> None:
    wrote = run("init", "--yes")
    assert (wrote.code, wrote.stdout) == (0, "")
    assert "inorder schema install" in wrote.stderr
    assert run("config", "check").code == 0
    assert Path("inorder.toml").stat().st_mode & 0o077 == 0


def test_options_become_settings(run: Run) -> None:
    columns = "id bigint, item text, paid boolean"
    options = ("--group", "shop", "--topic", "shop.orders", "--columns", columns, "--partitions", "8")
    assert run("init", "--yes", "--brokers", "one:9092,two:9092", "--database", "sqlite:///s.db", *options).code == 0
    settings = Settings.load()
    assert settings.relay.group == "shop"
    assert settings.kafka.properties["bootstrap.servers"] == "one:9092,two:9092"
    assert settings.topics["shop.orders"].partitions == 8
    upsert = settings.pipeline.upsert
    assert (upsert.topic, upsert.table, upsert.key, upsert.key_type) == (
        "shop.orders",
        "shop_orders",
        ["id"],
        ["bigint"],
    )
    assert upsert.fields == {"item": "text", "paid": "boolean"}


def test_questions_are_asked_for_what_no_option_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("sqlite:///shop.db\n\nshop\nsales\n-\n"))
    ran = run("init")
    assert ran.code == 0, ran.stderr
    settings = Settings.load()
    assert (settings.database.require_url(), settings.relay.group) == ("sqlite:///shop.db", "shop")
    assert "[pipeline" not in Path("inorder.toml").read_text()
    assert list(settings.topics) == ["sales"]


def test_addresses_come_from_running_servers(run: Run) -> None:
    Path("servers.json").write_text(json.dumps({"postgres": "postgresql+psycopg://u@h:1/d", "kafka": "h:2"}))
    assert run("init", "--yes", "--servers", "servers.json").code == 0
    assert Settings.load().database.require_url() == "postgresql+psycopg://u@h:1/d"
    assert Settings.load().kafka.properties["bootstrap.servers"] == "h:2"
    Path("other.json").write_text("")
    refused = run("init", "--yes", "--servers", "other.json", "--config", "other.toml")
    assert refused.code == 3
    assert "inorder up --json" in refused.stderr


def test_logins_come_from_the_settings_file_of_running_servers(run: Run) -> None:
    url, kafka = "postgresql+psycopg://u:geheim@h:1/d", {"bootstrap.servers": "h:2", "sasl.password": "geheim"}
    Path("servers.toml").write_text(settings_text({"kafka": kafka, "database": {"url": url}}))
    shown = {"postgres": "postgresql+psycopg://u:***@h:1/d", "kafka": "h:2", "settings": "servers.toml"}
    Path("servers.json").write_text(json.dumps(shown))
    wrote = run("init", "--yes", "--servers", "servers.json")
    assert (wrote.code, "geheim" in wrote.stderr) == (0, False)
    settings = Settings.load()
    assert (settings.database.require_url(), settings.kafka.properties["sasl.password"]) == (url, "geheim")
    assert Path("inorder.toml").stat().st_mode & 0o077 == 0


def test_a_file_that_exists_is_not_overwritten(run: Run) -> None:
    Path("inorder.toml").write_text("# mine\n")
    refused = run("init", "--yes")
    assert (refused.code, "is not overwritten" in refused.stderr) == (3, True)
    assert Path("inorder.toml").read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--columns", "id bigint", "only a key"),
        ("--columns", "id bigint, paid", "'paid' is not a name and a type"),
        ("--columns", "id bigint, paid bool", "boolean"),
        ("--database", "nowhere", "database.url"),
        ("--topic", "no topic", "topic"),
    ],
)
def test_nothing_is_written_that_would_not_pass_the_check(run: Run, option: str, value: str, said: str) -> None:
    refused = run("init", "--yes", option, value)
    assert refused.code == 3
    assert said in refused.stderr
    assert not Path("inorder.toml").exists()
