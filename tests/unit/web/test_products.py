"""The pages and calls of one product each: relays, topics, pipeline, journals."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape

import pytest

from tests.unit.web.test_site import EVIL, RELAY, Site, State


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def site(state: State, empty_place: None) -> Iterator[Site]:
    found = Site(state)
    yield found
    found.close()


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
    rows = [row.partition("</tr>")[0] for row in text.split("<tr>")]
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
