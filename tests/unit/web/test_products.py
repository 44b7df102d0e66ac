"""The pages and calls of one product each: relays, topics, pipeline, journals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from html import unescape
from typing import Any

import pytest

from inorder.journal.stores.ports import JournalFilter, JournalHead
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset
from inorder.operate.actions import Actor
from inorder.operate.journals import JournalView
from inorder.web.answers import answer_schema
from inorder.web.api import ROUTES
from tests.unit.web.test_site import AT, EVIL, PIPELINE, RELAY, REQUIRED, TOPICS, Site, State


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def site(state: State, empty_place: None) -> Iterator[Site]:
    found = Site(state)
    yield found
    found.close()


def rows_of(text: str) -> list[str]:
    return [row.partition("</tr>")[0] for row in text.split("<tr>")]


def test_relays_show_owner_and_term_of_every_shard_and_standby_instances(site: Site, state: State) -> None:
    state.parts["relay"] = RELAY | {
        "owners": ["a", "b"],
        "terms": [4, 9],
        "instances": ["a", "b", "c"],
        "shard_owners": [
            {"shard": 0, "owner": "a", "term": 4, "since": None},
            {"shard": 1, "owner": "b", "term": 9, "since": "2026-01-02T03:04:05+00:00"},
        ],
    }
    text = site.open().get("/relays").text
    rows = rows_of(text)
    assert any(">a<" in row and ">4<" in row and "before this page watched" in row for row in rows)
    assert any(">b<" in row and ">9<" in row and " ago<" in row for row in rows)
    assert any(">c<" in row and "standby" in row for row in rows)
    assert "<dt>in flight</dt><dd>12</dd>" in text


def test_relays_invent_no_figure_that_no_process_serves(site: Site, state: State) -> None:
    state.parts["relay"] = RELAY | {"served": None, "instances": None}
    text = site.open().get("/relays").text
    assert "<dt>in flight</dt>" not in text
    assert "Set <code>health.listen</code>" in text
    assert "Only owners are known." in text
    assert EVIL.partition("\x1b")[0] in unescape(text)


def test_topics_are_listed_though_none_was_ever_switched(site: Site, state: State) -> None:
    state.parts["topics"] = TOPICS | {"generations": [], "paused": {}}
    text = site.open().get("/topics").text
    [row] = [row for row in rows_of(text) if "settings, table" in row]
    assert ">orders<" in row
    assert ">4<" in row
    assert "orders.g1" in row
    [other] = [row for row in rows_of(text) if "does not exist" in row]
    assert "1 key" in other
    assert "inorder topics failover" in text


def test_an_installation_without_topics_says_what_to_do(site: Site, state: State) -> None:
    state.parts["topics"] = {"switched": 0, "behind": {}, "paused": {}, "listed": [], "generations": []}
    assert "Name one in <code>[topics.NAME]</code>" in site.open().get("/topics").text


def test_the_pipeline_shows_engine_slices_and_refusals_by_code(site: Site) -> None:
    text = site.open().get("/pipeline").text
    for name, value in {
        "engine of the settings": "resident",
        "slices since it started": "4",
        "mean time of a slice": "0.2 s",
        "mean records of a slice": "10.0",
        "restarts": "1",
    }.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert "decode 1.5 s" in text
    [row] = [row for row in rows_of(text) if "not-json" in row]
    assert ">3<" in row
    assert "/problems/dead-letters?pipeline=upsert%3Am&amp;topic=orders&amp;code=not-json" in row


@pytest.mark.parametrize(
    ("partition", "waiting", "shown"),
    [
        ({"behind": 2}, True, "waits"),
        ({"behind": 2}, False, "behind"),
        ({"behind": 0, "undecided": 3}, False, "open transaction"),
        ({"behind": 0, "undecided": 0}, False, "at the end"),
        ({"behind": None, "undecided": None}, False, "topic is missing"),
    ],
)
def test_each_partition_shows_its_state(
    site: Site, state: State, partition: dict[str, Any], waiting: bool, shown: str
) -> None:
    one: dict[str, Any] = PIPELINE["partitions"][0] | partition  # type: ignore[index]  # the fake's lists
    state.parts["pipeline"] = PIPELINE | {"partitions": [one], "waiting": PIPELINE["waiting"] if waiting else []}
    assert f"<td>{shown}</td>" in site.open().get("/pipeline").text


def test_the_pipeline_invents_no_figure_that_no_job_serves(site: Site, state: State) -> None:
    state.parts["pipeline"] = PIPELINE | {"jobs": [], "dead_letter_groups": []}
    text = site.open().get("/pipeline").text
    assert "slices since it started" not in text
    assert "Set <code>health.listen</code>" in text
    assert "There is no dead letter." in text


def test_a_journal_shows_the_store_beside_the_topic_and_its_events_as_text(site: Site, state: State) -> None:
    event = Event(41, {"data": EVIL + "x" * 3_000}, frozenset({EVIL}))
    state.look_up = lambda topic, id, first, _most: JournalView(
        Key(id, topic),
        seq_nr=41,
        delete_to=3,
        head=JournalHead(PartitionOffset(2, 900), 100, 40, 2),
        partition=2,
        replicated=901,
        first=first or 22,
        events=(EventRecord(event, AT, PartitionOffset(2, 950), EVIL),),
    )
    client = site.open()
    text = client.get("/journals/one", params={"topic": "journal", "id": EVIL}).text
    facts = {
        "pointer": 41,
        "deleted to": 3,
        "pointer in the store": 40,
        "deleted to in the store": 2,
        "last offset of it in the store": 900,
        "partition replicated up to": 901,
    }
    for name, value in facts.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert "The store is behind." in text
    assert "&lt;script&gt;" in text
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "the first 2,000 of" in text
    assert 'id="live"' not in text, "a look sends a mark, so the page does not repeat it"
    assert "from=2" in text
    assert "Earlier events" not in client.get("/journals/one", params={"topic": "j", "id": "a", "from": "4"}).text
    assert client.get("/journals/one", params={"topic": "j", "id": "a", "from": "x"}).status_code == 422


def test_a_journal_that_cannot_be_read_or_is_not_there_says_so(site: Site, state: State) -> None:
    client, asked = site.open(), {"topic": "journal", "id": "a"}
    assert "There is no such journal" in client.get("/journals/one", params=asked).text
    assert 'action="/journals/one"' in client.get("/journals").text
    assert "inorder journal ids" in client.get("/journals/one").text
    state.look_up = lambda topic, id, *_: JournalView(Key(id, topic), parked=EVIL)
    text = site.open().get("/journals/one", params=asked).text
    assert "It cannot be read." in text
    assert "<script>alert" not in text


GIVEN = {"key": EVIL, "topic": "journal", "id": EVIL}
OF_PRODUCTS = ("/relay", "/topics", "/pipeline", "/journals", "/journal", "/journal-list", "/doctor")
PLANS = ("/topics-plan", "/pipeline-plan")
TYPES = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip


@pytest.mark.parametrize("path", [each.path for each in ROUTES if each.method == "GET" and "{id}" not in each.path])
def test_an_answer_has_the_fields_of_its_schema(site: Site, path: str) -> None:
    schema = answer_schema("GET", path)
    called = path.replace("{name}", "orders")
    answer = site.open().get(f"/api/v1{called}", params={name: GIVEN[name] for name in REQUIRED[path]}).json()
    is_list = schema["type"] == "array"
    one = schema["items"] if is_list else schema
    assert isinstance(answer, list) == is_list
    for found in answer if is_list else [answer]:
        assert set(one["required"]) <= set(found)
        if path in (*OF_PRODUCTS, *PLANS):
            assert set(found) <= set(one["properties"]), "a field that the document does not know"
        for name in set(found) & set(one["properties"]):
            wanted = one["properties"][name]["type"]
            kinds = tuple(TYPES[each] for each in ([wanted] if isinstance(wanted, str) else wanted))
            assert isinstance(found[name], kinds), (name, found[name])


def test_every_call_has_a_schema_with_fields_in_the_document(site: Site) -> None:
    document = site.open().get("/api/v1/openapi.json").json()
    for methods in document["paths"].values():
        for operation in methods.values():
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            assert schema.get("items", schema)["properties"]


def test_the_doctor_and_the_plans_are_those_of_the_commands(site: Site) -> None:
    client = site.open()
    [check] = client.get("/api/v1/doctor").json()
    assert (check["name"], check["status"], check["unreachable"]) == ("database", "fail", False)
    assert client.get("/api/v1/topics-plan").json()[0]["action"] == "MakeIt"
    [column] = client.get("/api/v1/pipeline-plan", params={"table": "people"}).json()
    assert (column["table"], column["field"], column["type"]) == ("people", EVIL, "text")


def test_a_topic_is_read_by_its_name_with_its_generations(site: Site) -> None:
    client = site.open()
    found = client.get("/api/v1/topics/orders").json()
    assert (found["partitions"], found["target"], len(found["generations"])) == (4, "orders.g1", 1)
    assert client.get("/api/v1/topics/nothing").status_code == 404


def test_a_journal_and_the_list_of_a_topic_are_read_through_the_api(site: Site, state: State) -> None:
    asked: list[Any] = []

    def find(*given: Any) -> Any:
        asked.append(given)
        return [], False

    state.find = find
    client, wanted = site.open(), {"topic": "journal", "origin": "x", "created": "2026-01-02", "limit": "10000"}
    assert client.get("/api/v1/journal-list", params=wanted).json() == {"items": [], "has_more": False}
    assert asked == [("journal", JournalFilter("x", date(2026, 1, 2)), 500)]
    assert client.get("/api/v1/journal-list", params=wanted | {"created": "soon"}).status_code == 422
    assert client.get("/api/v1/journal-list").status_code == 422
    assert client.get("/api/v1/journal", params={"topic": "journal"}).status_code == 422
    found = client.get("/api/v1/journal", params={"topic": "journal", "id": "a"}).json()
    assert (found["id"], found["seq_nr"], found["events"]) == ("a", None, [])


def test_a_retry_of_dead_letters_goes_through_the_topic_if_asked(site: Site, state: State) -> None:
    client = site.open()
    body = {"code": "not-json", "reason": "fixed", "through": "topic", "settle_stale": True}
    assert client.post("/api/v1/dead-letters/retry", json=body | {"through": "moon"}).status_code == 422
    assert client.post("/api/v1/dead-letters/retry", json=body).status_code == 200
    [(_, _, wanted)] = state.done
    assert wanted == {
        "ids": [],
        "everything": False,
        "code": "not-json",
        "through": "topic",
        "settles_stale": True,
    }


def test_one_record_of_a_journal_in_quarantine_is_discarded_by_its_offset(site: Site, state: State) -> None:
    client, body = site.open(), {"topic": "journal", "id": "a", "reason": "of no use"}
    for given in ({"offset": 7}, {}):
        assert client.post("/api/v1/quarantine/discard", json=body | given).status_code == 200
    assert client.post("/api/v1/quarantine/discard", json=body | {"offset": "x"}).status_code == 422
    key, actor = Key("a", "journal"), Actor("local", "api")
    assert state.done == [
        (actor, ("discard", key, 7, "of no use"), {}),
        (actor, ("discard", key, None, "of no use"), {}),
    ]
