"""The topics that an operator sees: all that something uses, not only those that were switched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inorder.app import App
from inorder.model.message import Message
from inorder.operate.schema import schema_statements
from inorder.operate.topics import TopicAdmin, list_topics
from inorder.outbox.outbox import Outbox
from inorder.settings import Settings
from inorder.topics.pauses import Pause, PauseKind

SWITCHED = {"topic": "orders", "kafka_topic": "orders.g1", "generation": 1, "phase": "closing", "target": "orders.g2"}


def test_every_topic_that_is_used_switched_or_paused_is_listed_once() -> None:
    pauses = [
        Pause(PauseKind.TOPIC, "mail", "an incident", "ann", "now"),
        Pause(PauseKind.KEY, "orders/7", "a loop", "ann", "now"),
        Pause(PauseKind.TABLE, "people", "a repair", "ann", "now"),
    ]
    uses = {"settings": ["orders"], "outbox": ["orders", "lost"], "journal": ["journal-a"]}
    found = list_topics(uses, [SWITCHED], {"orders.g1": 8, "journal-a": 3, "unrelated": 1}, pauses)
    assert [(each["topic"], each["used_by"], each["partitions"]) for each in found] == [
        ("journal-a", ["journal"], 3),
        ("lost", ["outbox"], None),
        ("mail", [], None),
        ("orders", ["settings", "outbox"], 8),
    ]
    assert [each["paused"] for each in found] == ["", "", "an incident (ann, now)", ""]
    orders = found[-1]
    assert (orders["generation"], orders["phase"], orders["target"]) == (1, "closing", "orders.g2")
    assert orders["paused_keys"] == 1


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(
        None,
        database={"url": f"sqlite:///{tmp_path}/outbox.db"},
        topics={"mail": {"partitions": 2}},
        pipeline={"upsert": {"topic": "orders", "table": "orders"}},
        journal={"topic_prefixes": ["journal-"]},
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with two topics, in which no topic was ever switched."""

    class _Cluster:
        def partition_counts(self) -> dict[str, int]:
            return {"journal-a": 3, "orders": 8}

    def status(_self: TopicAdmin, _topic: str | None = None) -> list[dict[str, Any]]:
        return []

    monkeypatch.setattr(App, "cluster", _Cluster())
    monkeypatch.setattr(TopicAdmin, "status", status)


@pytest.mark.usefixtures("cluster")
def test_topics_come_from_settings_outbox_tables_and_journals(settings: Settings, tmp_path: Path) -> None:
    with App(settings) as app:
        app.database.install(schema_statements(settings, "native", "sqlite"))
        with closing(sqlite3.connect(tmp_path / "outbox.db")) as connection, connection:
            Outbox().publish_list(connection, [Message(name, value="1") for name in ("parcels", "orders")])
        found = app.parts()["topics"]()
    assert [(each["topic"], each["used_by"], each["partitions"]) for each in found["listed"]] == [
        ("journal-a", ["journal"], 3),
        ("mail", ["settings"], None),
        ("orders", ["outbox", "table"], 8),
        ("parcels", ["outbox"], None),
    ]


@pytest.mark.usefixtures("cluster")
def test_topics_are_listed_where_no_outbox_is_installed(settings: Settings) -> None:
    with App(settings) as app:
        found = app.parts()["topics"]()
    assert [each["topic"] for each in found["listed"]] == ["journal-a", "mail", "orders"]
