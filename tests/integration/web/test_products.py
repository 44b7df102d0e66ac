"""The pages of the products on real servers: what they show is what database, Kafka and store have."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

import inorder
from inorder.journal.service import journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.integration.web.test_web import Sites

# The fixtures of other tests.
from tests.integration.relay.conftest import bench as bench  # isort: skip
from tests.integration.web.test_web import open_site as open_site  # isort: skip


@pytest.mark.full
def test_relays_and_topics_show_owners_instances_and_what_waits(
    bench: Bench, unique: str, open_site: Sites, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 3)
    settings = bench.settings(leadership="database", shards=2)
    bench.publish(inorder.Message(unique, key="k", value="1"))
    client = open_site(settings)

    def waiting() -> list[dict[str, Any]]:
        return [each for each in listed(client) if each["topic"] == unique]

    eventually(waiting)
    assert [(each["used_by"], each["partitions"]) for each in waiting()] == [(["outbox"], 3)]
    eventually(lambda: owners(client) == [None, None])
    with inorder.Relay(settings):
        eventually(lambda: all(owners(client)))
        part = client.get("/api/v1/relay").json()
        rows = part["shard_owners"]
        assert part["instances"] == sorted({row["owner"] for row in rows})
        assert [row["term"] for row in rows] == [1, 1]
        assert all(row["since"] for row in rows), "the site saw them come"
        assert rows[0]["owner"] in client.get("/relays").text


def listed(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/v1/topics").json().get("listed", [])
    return found


def owners(client: TestClient) -> list[str | None]:
    found: list[str | None] = client.get("/api/v1/relay").json().get("owners", [None])
    return found


@pytest.mark.full
def test_a_journal_is_looked_up_while_the_store_is_behind(
    bench: Bench, unique: str, open_site: Sites, eventually: Eventually
) -> None:
    topic = f"{unique}-journal"
    ensure_topic(bench.properties, topic, 1)
    journal = bench.settings(leadership="none").journal.model_copy(update={"topic_prefixes": [topic]})
    settings = bench.settings(leadership="none").model_copy(update={"journal": journal})
    store = journal_store(settings)
    store.install()
    store.close()
    with inorder.Journals(settings) as journals:
        journals.journal(Key("a", topic)).append([Event(1, {"n": 1}), Event(2, "<script>")])
        journals.journal(Key("a", topic)).delete(1)
    client = open_site(settings)
    found = client.get("/api/v1/journal", params={"topic": topic, "id": "a"}).json()
    assert (found["seq_nr"], found["delete_to"], found["store"], found["is_stored"]) == (2, 1, None, False)
    assert [(each["seq_nr"], each["text"]) for each in found["events"]] == [(2, "<script>")]
    assert "&lt;script&gt;" in client.get("/journals/one", params={"topic": topic, "id": "a"}).text
    assert client.get("/api/v1/journal-list", params={"topic": topic}).json() == {"items": [], "has_more": False}
    assert client.get("/api/v1/journal", params={"topic": f"{unique}-mistyped", "id": "a"}).status_code == 422
    eventually(lambda: [each["used_by"] for each in listed(client)] == [["journal"]])
