"""The API changes what commands change, on real servers: topics are created, switched and copied, shards change."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

import inorder
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.integration.web.test_web import Sites

# The fixtures of other tests.
from tests.integration.relay.conftest import bench as bench  # isort: skip
from tests.integration.web.test_web import open_site as open_site  # isort: skip


def change(client: TestClient, call: str, **body: Any) -> dict[str, Any]:
    """The entry of a change in the log; it was done for the reason given."""
    answer = client.post(f"/api/v1/{call}", json={**body, "reason": "maintenance"})
    assert answer.status_code == 200, answer.text
    entry: dict[str, Any] = answer.json()
    assert (entry["state"], entry["reason"], entry["origin"]) == ("done", "maintenance", "api")
    assert client.get("/api/v1/actions").json()["items"][0]["id"] == entry["id"]
    return entry


def generations(client: TestClient) -> list[int]:
    return [each["generation"] for each in client.get("/api/v1/topics").json().get("generations", [])]


def test_a_topic_is_created_switched_and_copied_through_the_api_and_its_records_keep_their_order(
    bench: Bench, unique: str, open_site: Sites, eventually: Eventually
) -> None:
    settings = bench.settings(leadership="database")
    described = inorder.Settings.load(topics={unique: {"partitions": 2}}).topics
    client = open_site(settings.model_copy(update={"topics": described}))
    assert change(client, "topics/apply")["result"]["counts"] == {"planned": 1}

    def publish(place: int) -> None:
        bench.publish(*(inorder.Message(unique, key=str(key), value=str(place)) for key in range(5)))

    with inorder.Relay(settings):
        publish(1)
        eventually(lambda: bench.count() == 0)
        switched = change(client, "topics/failover", topic=unique, partitions=4)
        assert switched["target"] == {"topic": unique, "partitions": 4}
        assert switched["result"]["fates"][0]["detail"] == f"generation 1 in {unique}.g1, 4 partitions, steady"
        publish(2)
        eventually(lambda: bench.count() == 0)
    eventually(lambda: generations(client) == [1])
    copied = change(client, "topics/migrate", topic=unique, to=f"{unique}.all")
    assert copied["result"]["counts"] == {"copied": 10}
    found = list(read_back(bench.properties, f"{unique}.all"))
    by_key = {str(key): [each.value for each in found if each.key == str(key).encode()] for key in range(5)}
    assert by_key == {str(key): [b"1", b"2"] for key in range(5)}
    cancelled = change(client, "topics/failover", topic=unique, cancel=True)
    assert cancelled["result"]["counts"] == {"cancelled": 1}


def test_the_number_of_shards_is_changed_through_the_api(bench: Bench, unique: str, open_site: Sites) -> None:
    ensure_topic(bench.properties, unique, 1)
    one = bench.settings(leadership="database")
    client = open_site(one)
    with inorder.Relay(one) as relay:
        entry = change(client, "relay/reshard", shards=3)
        assert entry["result"]["fates"][0]["detail"].startswith("3 shards, strategy drain")
        with pytest.raises(ConfigurationError, match=r"shards = 1, but 3 is registered|being changed to"):
            relay.wait(60)


def test_a_change_that_fails_is_in_the_log_with_its_error(bench: Bench, unique: str, open_site: Sites) -> None:
    client = open_site(bench.settings(leadership="none"))
    answer = client.post("/api/v1/topics/failover", json={"topic": unique, "reason": "a mistyped name"})
    assert (answer.status_code, unique in answer.json()["error"]["message"]) == (422, True)
    entry = client.get("/api/v1/actions").json()["items"][0]
    assert (entry["action"], entry["state"]) == ("topics failover", "failed")
    whole = client.get(f"/api/v1/actions/{entry['id']}").json()
    assert unique in whole["result"]["error"]
    assert unique in client.get(f"/actions/{entry['id']}").text
