"""The pages and calls of one product each: relays, topics, pipeline, journals."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from inorder.journal.stores.ports import JournalHead
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset
from inorder.operate.journals import JournalView
from tests.unit.web.test_site import AT, EVIL, PIPELINE, RELAY, TOPICS, Site, State


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


def test_relays_show_owner_and_term_of_every_shard_and_who_stands_by(site: Site, state: State) -> None:
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
    assert any(">c<" in row and "stands by" in row for row in rows)
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
