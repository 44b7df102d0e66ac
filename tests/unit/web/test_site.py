"""The site without servers: pages, API, escaping, access and health, on services that a test decides."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import unescape
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from inorder.journal.replication.store_port import Quarantined
from inorder.journal.stores.ports import ListedJournal, LogRecord
from inorder.model.errors import UnreachableError
from inorder.model.journal import Key
from inorder.operate.actions import Action, Actor, Logged, Outcome
from inorder.operate.doctor import Check, fail
from inorder.operate.fields import letter_coordinates
from inorder.operate.journals import JournalView
from inorder.operate.key_trace import (
    EventMark,
    KeyTrace,
    Letter,
    OutboxHop,
    SetAsideRow,
    Sighting,
    TableHop,
    TopicHop,
    WaitingRow,
)
from inorder.pipeline.growth import NewColumn
from inorder.pipeline.stores.ports import LetterGroup, StoredLetter
from inorder.relay.stores.exceeded import ExceededGroup, ExceededRow
from inorder.settings import Settings
from inorder.topics.desired import CreateTopic
from inorder.topics.generations import Target
from inorder.topics.pauses import Pause, PauseKind
from inorder.web import site as site_module
from inorder.web.api import ROUTES
from inorder.web.backend import WebBackend
from inorder.web.pages import PAGES, rates_of
from inorder.web.rendering import NOTHING, ago, chart, moment, utc
from inorder.web.site import create_site

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVIL = '<script>alert("x")</script>\x1b[31m'
TOKEN, READ_TOKEN = "act-token-0123456789", "read-token-0123456789"
BASE = "http://127.0.0.1:8090"
PAGE_PATHS = [path for method, path, _ in PAGES if method == "GET" and "{" not in path and "review" not in path]


def exceeded_row(id: int) -> ExceededRow:
    return ExceededRow(
        id,
        EVIL,
        EVIL.encode(),
        EVIL.encode(),
        f'[["h","{EVIL}"]]',
        None,
        None,
        AT,
        5,
        "RECORD-001",
        EVIL,
        True,
        AT,
        None,
    )


LETTER = StoredLetter("upsert:m", "orders", 3, 42, 0, "not-json", EVIL, EVIL.encode(), EVIL.encode(), None, AT)
TRACE = KeyTrace(
    EVIL,
    OutboxHop("outbox", 1, (WaitingRow(2, EVIL, AT),), (SetAsideRow(1, EVIL, "RECORD-001", EVIL, True),)),
    (
        TopicHop(
            "orders",
            0,
            3,
            0,
            43,
            61,
            (
                Sighting(41, 1_767_323_045_000, 9, "7"),
                Sighting(42, 1_767_323_045_000, 9, "7", marks=(EventMark("duplicate", EVIL),)),
            ),
            2,
            older=59,
        ),
    ),
    (
        TableHop(
            "messages",
            "upsert:m",
            {"data": EVIL},
            (0, 41),
            False,
            {("orders", 3): 42},
            (Letter("orders:3:42", "c", EVIL),),
        ),
    ),
    paused=(Pause(PauseKind.TABLE, "messages", EVIL, "ann", "2026-01-02 03:04:05"),),
)


class FakeApp:
    """An app whose services return what is set here, and note what is done."""

    def __init__(self, state: State, actor: Actor) -> None:
        self._state = state
        self._actor = actor
        self.relay_admin = SimpleNamespace(
            exceeded_page=lambda above, most, **_: [exceeded_row(id) for id in range(above + 1, above + most + 1)],
            exceeded_rows=lambda id: [exceeded_row(id)] if id < 100 else [],
            exceeded_groups=lambda **_: [ExceededGroup("RECORD-001", EVIL, 10_000, AT)],
            count_exceeded=lambda most, **_: min(most, 10_000),
            missing_page=lambda _above, _most: [],
        )
        self.dead_letters = SimpleNamespace(
            page=lambda _behind, _most, **_: [LETTER],
            read=lambda _limit, **_: [LETTER],
            count_up_to=lambda most, **_: min(most, 3),
            groups=lambda **_: [LetterGroup("upsert:m", "orders", "not-json", 3, AT)],
        )
        self.journal_admin = SimpleNamespace(quarantined=self._quarantined)
        self.journal_lookup = SimpleNamespace(look_up=state.look_up, find=state.find)
        self.topics = SimpleNamespace(plan=lambda: [CreateTopic(Target("orders", 4), None, {})])
        self.action_log = SimpleNamespace(page=self._actions, read=self._action)
        self.set_aside = SimpleNamespace(
            settle_exceeded=self._settle,
            retry_letters=self._settle,
            discard_letters=self._settle,
            follow_up=lambda action: action.result,
            release_journal=partial(self._settle, "release"),
            discard_journal=partial(self._settle, "discard"),
        )

    def __enter__(self) -> FakeApp:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def parts(self) -> dict[str, Any]:
        return {name: lambda name=name: self._part(name) for name in ("relay", "topics", "pipeline", "journal")}

    def checks(self) -> dict[str, Any]:
        return {"database": lambda: {"dialect": "postgres"}, "kafka": self._kafka}

    def trace_key(self, key: str, **wanted: Any) -> KeyTrace:
        assert key == EVIL
        self._state.looked_up.append(wanted)
        return TRACE

    def examine(self) -> list[Check]:
        return [fail("database", EVIL, "Run `inorder schema install`.")]

    def plan_columns(self, table: str | None) -> list[NewColumn]:
        return [NewColumn(table or "orders", EVIL, 3, "text", None)]

    def _quarantined(self, topic: str | None = None, id: str | None = None) -> list[Quarantined]:
        return [
            each for each in self._state.quarantined if (topic, id) in ((None, None), (each.key.topic, each.key.id))
        ]

    def _kafka(self) -> dict[str, Any]:
        if self._state.kafka_is_away:
            raise UnreachableError("Kafka at broker:9092 does not answer.")
        return {"cluster_id": "c", "brokers": ["broker:9092"]}

    def _part(self, name: str) -> dict[str, Any]:
        return self._state.parts[name]

    def _settle(self, *asked: Any, **wanted: Any) -> Logged[Any]:
        self._state.done.append((self._actor, asked, wanted))
        return Logged("0001", [])

    @property
    def changes(self) -> Any:
        names = (
            "apply_topics",
            "fail_over",
            "cancel_fail_over",
            "migrate",
            "reshard",
            "replay_outbox",
            "apply_columns",
        )
        return SimpleNamespace(**{name: partial(self._settle, name) for name in names})

    def replay_outbox(self, **wanted: Any) -> int:
        return len(wanted)

    def pause(self, *what: Any, **why: Any) -> Logged[Any]:
        return self._settle("pause", *what, **why)

    def resume(self, *what: Any, **why: Any) -> Logged[Any]:
        return self._settle("resume", *what, **why)

    def _actions(self, **_: Any) -> list[Action]:
        return [self._action("0001")]

    def _action(self, id: str) -> Action:
        fates = self._state.fates
        outcome = {"counts": Counter(each["fate"] for each in fates), "fates": fates, "error": ""}
        return Action(
            id, AT, "ann", "page", "exceeded retry", json.dumps({"key": EVIL}), EVIL, "done", json.dumps(outcome)
        )


RELAY = {
    "group": "g", "table": "outbox", "strategy": "drain", "shards": 1, "waiting": 3, "oldest_seconds": 75.0,
    "owner": EVIL, "term": 4, "owners": [EVIL], "terms": [4], "instances": [EVIL], "phantoms": "", "exceeded": 10_000,
    "shard_owners": [{"shard": 0, "owner": EVIL, "term": 4, "since": AT.isoformat()}],
    "served": {"in_flight": 12, "published": 34, "exceeded": 5, "terms": 1, "leads": True, "error": EVIL},
    "exceeded_groups": [{"code": "RECORD-001", "topic": EVIL, "count": 10_000, "oldest": AT.isoformat()}],
}  # fmt: skip
PIPELINE = {
    "pipelines": ["upsert:m"], "applied": 7, "identical": 0, "stale": 0, "ignored": 0, "rejected": 1, "behind": 2,
    "undecided": 0, "oldest_seconds": 1.0, "last_slice_seconds": 1.0, "unknown_fields": {EVIL: 3}, "dead_letters": 3,
    "partitions": [{
        "pipeline": "upsert:m", "topic": "orders", "partition": 3, "next_offset": 42, "applied": 7, "identical": 0,
        "stale": 0, "ignored": 0, "rejected": 1, "behind": 2, "undecided": 0, "oldest_seconds": None,
        "last_slice_seconds": 1.0,
    }],
    "waiting": [{"topic": "orders", "partition": 3, "since": AT.isoformat(), "reason": EVIL}],
    "engine": "resident",
    "jobs": [{
        "job": "upsert", "running": True, "slices": 4, "slice_seconds": 0.25, "slice_records": 10.0, "restarts": 1,
        "phases": {"decode": 1.5}, "refused": {EVIL: 2},
    }],
    "dead_letter_groups": [
        {"pipeline": "upsert:m", "topic": "orders", "code": "not-json", "count": 3, "oldest": AT.isoformat()}
    ],
}  # fmt: skip
JOURNAL = {
    "topics": 1, "behind": 2, "parked": 0,
    "lag": [{"topic": "journal", "partition": 0, "end": 9, "replicated": None, "behind": 2}],
}  # fmt: skip
TOPICS = {
    "switched": 1, "behind": {"orders": 0}, "paused": {f"topic {EVIL}": EVIL},
    "listed": [
        {
            "topic": EVIL, "used_by": ["outbox"], "kafka_topic": EVIL, "partitions": None, "generation": 0,
            "phase": "", "target": "", "paused": EVIL, "paused_keys": 1,
        },
        {
            "topic": "orders", "used_by": ["settings", "table"], "kafka_topic": "orders", "partitions": 4,
            "generation": 0, "phase": "closing", "target": "orders.g1", "paused": "", "paused_keys": 0,
        },
    ],
    "generations": [{
        "topic": "orders", "phase": "closing", "generation": 0, "kafka_topic": "orders", "target": "orders.g1",
        "epoch": 1, "mirrored_epoch": 1, "behind": 0, "next": "wait",
        "generations": [
            {"generation": 0, "kafka_topic": "orders", "partitions": 4, "state": "open", "ends": [], "late": 0}
        ],
    }],
}  # fmt: skip


class State:
    """What the services return."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {
            "relay": RELAY, "topics": TOPICS, "pipeline": PIPELINE, "journal": JOURNAL,
        }  # fmt: skip
        self.kafka_is_away = False
        self.look_up: Any = lambda topic, id, *_: JournalView(Key(id, topic))
        self.find: Any = lambda _topic, _where, most: ([ListedJournal("a", 7, None, AT, AT, EVIL, None)], most < 1)
        self.quarantined: list[Quarantined] = []
        self.looked_up: list[dict[str, Any]] = []
        self.fates: list[dict[str, Any]] = [{"id": 1, "key": EVIL, "fate": "put back", "detail": EVIL}]
        self.done: list[tuple[Actor, Any, dict[str, Any]]] = []


@pytest.fixture
def state() -> State:
    return State()


class Site:
    """Opens sites, and waits until everything was read once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._opened: list[WebBackend] = []

    def open(self, settings: Settings | None = None, **web: Any) -> TestClient:
        settings = settings or Settings.load(database={"url": "postgresql+psycopg://u:hunter2@h/d"}, web=web)
        made: Any = lambda actor: FakeApp(self._state, actor)  # noqa: E731
        backend = WebBackend(settings, made).__enter__()
        self._opened.append(backend)
        while any(each.part is None for each in backend.readings().values()):
            backend.watch._readers["relay"].join(0.01)
        return TestClient(create_site(backend), base_url=BASE, follow_redirects=False, client=("127.0.0.1", 1))

    def let_pass(self, seconds: float) -> None:
        """Makes every reading so much older, as if its reader hung."""
        for reader in (each for backend in self._opened for each in backend.watch._readers.values()):
            assert reader._last is not None
            reader._last = (reader._last[0] - seconds, reader._last[1])

    def close(self) -> None:
        for backend in self._opened:
            backend.__exit__(None, None, None)


@pytest.fixture
def site(state: State, empty_place: None) -> Iterator[Site]:
    found = Site(state)
    yield found
    found.close()


FORM = {"origin": BASE, "content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    "path",
    [
        *PAGE_PATHS,
        "/problems/exceeded",
        "/problems/dead-letters?code=not-json",
        "/problems/exceeded/1",
        "/problems/dead-letters/orders:3:42?pipeline=upsert:m",
        "/problems/review?kind=exceeded&action=retry&code=RECORD-001",
        "/problems/review?kind=dead-letters&action=discard&id=orders:3:42",
        "/actions/0001",
    ],
)
def test_every_page_shows_what_records_hold_as_text(site: Site, path: str) -> None:
    answer = site.open().get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text
    assert not re.search(r"<[^>]+ (?:on\w+|style)=", answer.text), "the policy allows no inline script or style"
    assert "hunter2" not in answer.text


def test_a_key_is_followed_with_scripts_as_text(site: Site) -> None:
    answer = site.open().get("/key", params={"key": EVIL})
    assert answer.status_code == 200
    assert "&lt;script&gt;" in answer.text
    assert "<script>alert" not in answer.text
    assert "is parked behind row 1" in answer.text
    assert "<code>inorder resume table messages</code>" in answer.text


def test_the_events_of_a_key_are_shown_in_order_with_times_places_and_marks(site: Site, state: State) -> None:
    client = site.open()
    page = client.get("/key", params={"key": EVIL}).text
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]
    found = [" ".join(row) for row in rows if row and row[0] != "event"]
    assert [row.partition("row ")[2][:1] for row in found] == ["1", "2", "7", "7"], "topics in the order of their names"
    assert "row 1 refused" in found[0]
    assert "row 2 waits, written 2026-01-02 03:04:05 UTC" in found[1]
    assert "orders[3] at 41, 2026-01-02 03:04:05.000" in found[2]
    assert "messages: applied" in found[2]
    assert "messages: rejected" in found[3]
    assert "duplicate : &lt;script&gt;" in found[3]
    [older] = re.findall(r'href="([^"]*)">59 older records of orders\[3\]', page)
    assert client.get(unescape(older)).status_code == 200
    assert [each["before"] for each in state.looked_up] == [None, ("orders", 3, 41)]
    assert client.get("/key", params={"key": EVIL, "before": "orders"}).status_code == 422


def test_the_api_shows_older_records_of_a_key(site: Site, state: State) -> None:
    assert site.open().get("/api/v1/key", params={"key": EVIL, "before": "orders:3:41"}).status_code == 200
    assert [each["before"] for each in state.looked_up] == [("orders", 3, 41)]


def test_lists_lead_to_a_key_that_is_not_text(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LETTER", replace(LETTER, key=b"k\xff"))
    client = site.open()
    for path in ("/problems/dead-letters", "/problems/dead-letters/orders:3:42?pipeline=upsert:m"):
        assert 'href="/key?key=hex%3A6bff' in client.get(path).text
    assert client.get("/api/v1/dead-letters").json()["items"][0]["key_text"] == "hex:6bff"


def test_the_api_has_the_events_of_a_key(site: Site) -> None:
    answer = site.open().get("/api/v1/key", params={"key": EVIL}).json()
    assert [(each["outbox_id"], each["offset"]) for each in answer["events"]] == [
        ("1", None),
        ("2", None),
        ("7", 41),
        ("7", 42),
    ]
    assert answer["topics"][0]["before"] == "orders:3:41"


def test_the_first_page_says_what_is_wrong_first(site: Site) -> None:
    text = site.open().get("/").text
    assert text.index("10,000 records used up their attempts") < text.index("could not be applied")
    assert text.index("could not be applied") < text.index('class="strip"')


def test_empty_places_say_what_to_do(site: Site, state: State) -> None:
    state.parts = {
        "relay": {"error": "database.url is not set.", "exit_code": 3},
        "topics": {"switched": 0, "behind": {}, "generations": []},
        "pipeline": PIPELINE
        | {"partitions": [], "waiting": [], "dead_letters": 0, "dead_letter_groups": [], "behind": 0},
        "journal": {"topics": 0, "behind": 0},
    }
    client = site.open()
    assert "inorder topics failover" in client.get("/topics").text
    assert "inorder pipeline run upsert" in client.get("/pipeline").text
    assert "inorder pipeline run replicate" in client.get("/journals").text
    assert "database.url is not set." in client.get("/relays").text
    assert "No record was rejected." in client.get("/problems").text


def test_every_answer_has_a_strict_policy(site: Site) -> None:
    client = site.open()
    for path in ("/", "/api/v1/status", "/livez", "/nothing", "/static/site.css"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_scripts_are_ours_and_small() -> None:
    files = list(site_module._STATIC.iterdir())
    assert sum(each.stat().st_size for each in files) < 300_000
    assert {"htmx-2.0.11.min.js", "htmx-LICENSE.txt"} <= {each.name for each in files}


def test_an_action_through_the_form_leads_to_its_entry(site: Site, state: State) -> None:
    client = site.open()
    form = "kind=exceeded&action=retry&id=7&id=3&reason=limit+raised"
    answer = client.post("/problems/act", content=form, headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/actions/0001")
    [(actor, asked, wanted)] = state.done
    assert (actor, asked) == (Actor("local", "page"), ("retry", "limit raised"))
    assert wanted == {"ids": [7, 3], "everything": False}


def send_back(client: TestClient, page: str) -> None:
    """Sends the first form of a page that acts as a browser does, with a reason."""
    text = next(each for each in re.findall(r"<form[^>]*>.*?</form>", page, re.DOTALL) if "/problems/act" in each)
    [target] = re.findall(r'action="([^"]*)"', text)
    given = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', text)
    body = urlencode([(name, unescape(value)) for name, value in given] + [("reason", "why")])
    assert client.post(unescape(target), content=body, headers=FORM).status_code == 303


@pytest.mark.parametrize("name", [EVIL, "a\x00b", "a\r\nb\n", "a&b=c%41+ d", "\x85\u2028"])
def test_an_action_is_for_the_very_name_that_was_reviewed(site: Site, state: State, name: str) -> None:
    """Control characters are escaped where they are shown, and not where they are sent back."""
    state.parts["topics"] = TOPICS | {"paused": {f"key {name}": "why"}}
    client = site.open()
    send_back(client, client.get("/problems/review", params={"kind": "exceeded", "action": "retry", "key": name}).text)
    send_back(client, client.get("/topics").text)
    (_, _, wanted), (_, resumed, _) = state.done
    assert wanted["key"] == name.encode()
    assert resumed == ("resume", PauseKind.KEY, name)


def test_an_entry_lists_each_discarded_letter(site: Site, state: State) -> None:
    state.fates = [
        {"id": f"orders:3:{at}", "pipeline": "upsert:m", "key": key, "fate": "discarded", "detail": "not-json"}
        for at, key in ((1, "k"), (2, None))
    ]
    page = site.open().get("/actions/0001").text
    assert ["".join(re.findall(r">([^<>]+)<", row)) for row in re.findall(r"<tr>.*?</tr>", page)] == [
        "idpipelinekeynowdetail",
        "orders:3:1upsert:mkdiscardednot-json",
        f"orders:3:2upsert:m{NOTHING}discardednot-json",
    ]


def test_held_topics_are_problems_with_reason_command_and_what_ends_a_pause(site: Site, state: State) -> None:
    state.parts["topics"] = TOPICS | {"paused": {"topic a b": "an incident (ann)"}}
    client = site.open()
    page = client.get("/problems").text
    assert "an incident (ann)" in page
    assert "<code>inorder resume topic &#39;a b&#39;</code>" in page
    assert "<code>inorder topics status orders</code>" in page
    send_back(client, page)
    [(_, resumed, _)] = state.done
    assert resumed == ("resume", PauseKind.TOPIC, "a b")


@pytest.mark.parametrize("action", ["release", "discard"])
def test_a_journal_in_quarantine_is_settled_after_a_counted_preview_with_a_reason(
    site: Site, state: State, action: str
) -> None:
    state.parts["journal"] = JOURNAL | {"parked": 2}
    state.quarantined = [
        Quarantined(Key(id, "journal"), 0, EVIL, LogRecord(offset, 1, id.encode(), b"v", ()))
        for id, offsets in ((EVIL, range(12)), ("other", range(12, 13)))
        for offset in offsets
    ]
    client = site.open()
    problems = client.get("/problems").text
    assert 'value="quarantine"' not in problems, "nothing is settled with one click"
    links = [unescape(each) for each in re.findall(rf'href="(/problems/review[^"]*action={action})"', problems)]
    review = client.get(next(each for each in links if "quarantine" in each)).text
    assert f"{action.capitalize()} 12 records?" in review
    assert "The first 10 of 12." in review
    assert "<script>alert" not in review + problems
    form = {"kind": "quarantine", "action": action, "topic": "journal", "id": EVIL}
    assert client.post("/problems/act", content=urlencode(form), headers=FORM).status_code == 422
    assert state.done == [], "a reason is required"
    send_back(client, review)
    [(_, asked, _)] = state.done
    assert (asked[0], asked[1], asked[-1]) == (action, Key(EVIL, "journal"), "why")


def test_chosen_dead_letters_are_those_of_their_pipeline(site: Site, state: State) -> None:
    client = site.open()
    [chosen] = re.findall(r'type="checkbox" name="id" value="([^"]*)"', client.get("/problems/dead-letters").text)
    review = client.get("/problems/review", params={"kind": "dead-letters", "action": "discard", "id": chosen}).text
    send_back(client, review)
    [(_, _, wanted)] = state.done
    assert [letter_coordinates(id) for id in wanted["ids"]] == [
        {"pipeline": "upsert:m", "topic": "orders", "partition": 3, "offset": 42}
    ]


def test_a_review_says_whether_records_are_put_back_together(site: Site) -> None:
    client, chosen = site.open(), {"kind": "exceeded", "action": "retry"}
    assert "all of them or none" in client.get("/problems/review", params=chosen | {"code": "RECORD-001"}).text
    one_by_one = client.get("/problems/review", params=chosen | {"id": ["1", "2"]}).text
    assert "all of them or none" not in one_by_one
    assert "one after the other" in one_by_one


def test_a_topic_is_paused_and_resumed_through_form_and_api(site: Site, state: State) -> None:
    client = site.open()
    form = "kind=pause&action=pause&what=topic&name=orders&reason=an+incident"
    answer = client.post("/problems/act", content=form, headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/actions/0001")
    assert client.post("/api/v1/resume", json={"kind": "topic", "name": "orders"}).status_code == 200
    assert state.done == [
        (Actor("local", "page"), ("pause", PauseKind.TOPIC, "orders"), {"reason": "an incident"}),
        (Actor("local", "api"), ("resume", PauseKind.TOPIC, "orders"), {"reason": ""}),
    ]


@pytest.mark.parametrize(
    "body", [{"kind": "topic", "name": "orders"}, {"kind": "moon", "name": "x", "reason": "y"}, {"kind": "topic"}]
)
def test_a_pause_without_a_reason_or_of_an_unknown_kind_is_refused(
    site: Site, state: State, body: dict[str, str]
) -> None:
    assert site.open().post("/api/v1/pause", json=body).status_code == 422
    assert state.done == []


def test_an_action_through_the_api_is_by_filter_and_can_be_counted_first(site: Site, state: State) -> None:
    client = site.open()
    body = {"code": "not-json", "reason": "fixed", "dry_run": True}
    assert client.post("/api/v1/dead-letters/retry", json=body).json() == {"count": 3, "dry_run": True}
    assert state.done == []
    answer = client.post("/api/v1/dead-letters/retry", json=body | {"dry_run": False})
    assert answer.json()["result"]["counts"] == {"put back": 1}
    [(actor, asked, wanted)] = state.done
    assert (actor, asked) == (Actor("local", "api"), ("fixed",))
    assert wanted == {"ids": [], "everything": False, "code": "not-json"}


@pytest.mark.parametrize(
    ("body", "status"),
    [({"code": "c"}, 422), ({"ids": 3, "reason": "x"}, 422), ({"ids": ["a"], "reason": "x"}, 422), ([], 400)],
)
def test_a_wrong_call_is_refused_with_its_reason(site: Site, state: State, body: Any, status: int) -> None:
    answer = site.open().post("/api/v1/exceeded/retry", json=body)
    assert (answer.status_code, state.done) == (status, [])
    assert answer.json()["error"]["message"]


def test_large_and_broken_bodies_are_refused(site: Site, state: State) -> None:
    client = site.open()
    headers = {"content-type": "application/json"}
    assert client.post("/api/v1/exceeded/retry", content=b"{", headers=headers).status_code == 400
    assert client.post("/api/v1/exceeded/retry", content=b"[" * 999_999, headers=headers).status_code == 400
    assert client.post("/api/v1/exceeded/retry", content=b" " * 2_000_000, headers=headers).status_code == 413
    assert client.post("/problems/act", content=b"a" * 2_000_000, headers=FORM).status_code == 413
    assert state.done == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null", f"{BASE}0"])
def test_a_write_from_another_site_is_refused(site: Site, state: State, origin: str) -> None:
    client = site.open()
    form = "kind=exceeded&action=discard&all=1&reason=x"
    assert client.post("/problems/act", content=form, headers=FORM | {"origin": origin}).status_code == 403
    body = {"all": True, "reason": "x"}
    assert client.post("/api/v1/exceeded/discard", json=body, headers={"origin": origin}).status_code == 403
    assert state.done == []


def test_a_request_for_another_host_gets_nothing(site: Site) -> None:
    for path in ("/", "/api/v1/status", "/readyz", "/static/site.css"):
        answer = site.open().get(path, headers={"host": "evil.example"})
        assert (answer.status_code, "outbox" in answer.text) == (403, False)


def test_a_wrong_token_gets_nothing_and_the_right_one_everything(site: Site, state: State) -> None:
    client = site.open(listen="0.0.0.0:8090", token=TOKEN, read_token=READ_TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {TOKEN}x"}):
        for path in ("/api/v1/status", "/api/v1/settings", "/metrics", "/api/v1/openapi.json"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, "outbox" in answer.text) == (401, False)
        answer = client.get("/problems?x=1", headers=headers)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fproblems%3Fx%3D1")
        assert client.post("/problems/act", content="a=b", headers=FORM | headers).status_code == 401
    assert client.get("/livez").status_code == 200
    right = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/v1/relay", headers=right).json()["table"] == "outbox"
    assert TOKEN not in client.get("/settings", headers=right).text
    assert TOKEN not in client.get("/api/v1/settings", headers=right).text
    reader, body = {"authorization": f"Bearer {READ_TOKEN}"}, {"ids": [1], "reason": "x"}
    assert client.get("/problems", headers=reader).status_code == 200
    assert "Retry" not in client.get("/problems", headers=reader).text
    assert client.post("/api/v1/exceeded/retry", json=body, headers=reader).status_code == 403
    assert state.done == []
    assert client.post("/api/v1/exceeded/retry", json=body, headers=right).status_code == 200


def test_signing_in_sets_a_cookie_that_is_not_the_token(site: Site) -> None:
    client = site.open(listen="0.0.0.0:8090", token=TOKEN)
    assert "Sign in" in client.get("/login?next=//evil.example").text
    wrong = client.post("/login", content="token=wrong-token-0123456", headers=FORM)
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (403, False)
    assert client.post("/login", content=f"token={TOKEN}", headers=FORM | {"origin": "https://e"}).status_code == 403
    right = client.post("/login", content=f"token={TOKEN}&next=/key", headers=FORM)
    assert (right.status_code, right.headers["location"]) == (303, "/key")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200
    assert client.post("/logout", headers=FORM).status_code == 303
    assert client.get("/").status_code == 303


def test_kafka_is_away_and_the_site_says_so(site: Site, state: State) -> None:
    state.kafka_is_away = True
    client = site.open()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "database: ok\nkafka: Kafka at broker:9092 does not answer.\n")
    assert (client.get("/livez").status_code, client.get("/livez").text) == (200, "ok")
    assert "Kafka at broker:9092 does not answer." in client.get("/").text
    assert 'inorder_web_part_up{part="kafka"} 0.0' in client.get("/metrics").text
    strangers = site.open(token=TOKEN).get("/readyz")
    assert (strangers.status_code, strangers.text) == (503, "database: ok\nkafka: It does not answer.\n")


def test_a_check_that_hangs_is_not_ready_and_the_flow_is_not_ok(site: Site) -> None:
    client = site.open(refresh_seconds=3600)
    assert client.get("/readyz").status_code == 200
    site.let_pass(4 * 3600)
    answer, silent = client.get("/readyz"), re.compile(r"It has not answered for 144\d\d s\.")
    assert (answer.status_code, len(silent.findall(answer.text))) == (503, 2)
    assert {each["health"] for each in client.get("/api/v1/flow").json()["hops"]} == {"trouble"}
    assert silent.match(client.get("/api/v1/status").json()["relay"]["error"])
    assert silent.search(client.get("/pipeline").text)


def test_a_fault_of_ours_in_one_part_leaves_the_others(site: Site, state: State) -> None:
    del state.parts["journal"]
    client = site.open()
    assert "This is a fault of inorder" in client.get("/journals").text
    assert client.get("/pipeline").status_code == 200


def test_lists_have_a_next_page_by_key(site: Site) -> None:
    client = site.open()
    first = client.get("/api/v1/exceeded", params={"limit": 2}).json()
    assert ([each["id"] for each in first["items"]], first["next"]) == ([1, 2], {"after": 2})
    second = client.get("/api/v1/exceeded", params={"limit": 2, **first["next"]}).json()
    assert [each["id"] for each in second["items"]] == [3, 4]
    assert len(client.get("/api/v1/exceeded", params={"limit": 10_000}).json()["items"]) == 500
    assert client.get("/api/v1/exceeded", params={"after": "x"}).status_code == 422
    letters = client.get("/api/v1/dead-letters", params={"limit": 1}).json()
    assert letters["next"] == {"after": "orders:3:42", "after_pipeline": "upsert:m"}


def test_a_list_shows_the_count_of_the_last_reading_and_counts_nothing_itself(site: Site) -> None:
    client = site.open()
    assert '<span class="count">10,000</span>' in client.get("/problems/exceeded?code=RECORD-001").text
    assert '<span class="count">0</span>' in client.get("/problems/exceeded?code=RECORD-002").text
    assert '<span class="count">3</span>' in client.get("/problems/dead-letters?pipeline=upsert:m").text
    assert "count" not in client.get("/problems/exceeded?key=a").text


def test_a_chart_begins_with_what_there_is() -> None:
    assert chart([(0.0, 1.0)]) is None
    drawn = chart([(0.0, 0.0), (600.0, 4.0), (1200.0, 2.0)])
    assert drawn is not None
    assert (drawn["span"], drawn["top"], drawn["last"]) == (1200.0, 4.0, 2.0)
    assert drawn["line"].startswith("0.0,47.0 120.0,1.0 240.0,")
    assert ago(AT, AT) == "now"
    assert [utc(each) for each in (None, 1_767_323_045_001)] == ["\N{EN DASH}", "2026-01-02 03:04:05.001"]
    assert [utc(each) for each in (-(2**63), 2**63 - 1)] == ["-9223372036854775808 ms", "9223372036854775807 ms"]
    assert [moment(None), moment(AT)] == ["\N{EN DASH}", "2026-01-02 03:04:05 UTC"]


def test_what_is_not_there_is_not_found(site: Site) -> None:
    client = site.open()
    assert client.get("/api/v1/exceeded/100").status_code == 404
    assert client.get("/problems/exceeded/100").status_code == 404
    assert client.get("/problems/other").status_code == 404
    assert client.get("/api/v1/nothing").json()["error"]["message"] == "There is no such page."


CHANGES: list[tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ("topics/apply", {}, ("apply_topics", "why"), {}),
    ("topics/failover", {"topic": "o"}, ("fail_over", "o", "why"), {"partitions": None, "to": None}),
    ("topics/failover", {"topic": "o", "cancel": True}, ("cancel_fail_over", "o", "why"), {}),
    ("relay/reshard", {"shards": 4}, ("reshard", "why"), {"shards": 4, "restored": False}),
    ("outbox/replay", {"key": "k"}, ("replay_outbox", "why"), {"key": b"k"}),
    ("outbox/replay", {"since": "2026-01-02T03:04:05"}, ("replay_outbox", "why"), {"since": AT}),
    ("pipeline/apply", {"fields": {"a": "text"}}, ("apply_columns", {"a": "text"}, None, "why"), {}),
]


@pytest.mark.parametrize(("call", "body", "asked", "wanted"), CHANGES)
def test_the_api_changes_topics_shards_and_columns_with_a_reason_and_the_role_for_it(
    site: Site, state: State, call: str, body: dict[str, Any], asked: tuple[Any, ...], wanted: dict[str, Any]
) -> None:
    client = site.open(token=TOKEN, read_token=READ_TOKEN)
    acting, reading = ({"authorization": f"Bearer {each}"} for each in (TOKEN, READ_TOKEN))
    path, whole = f"/api/v1/{call}", body | {"reason": "why"}
    assert client.post(path, json=whole, headers=reading).status_code == 403
    assert client.post(path, json=body, headers=acting).status_code == 422
    assert state.done == []
    assert client.post(path, json=whole, headers=acting).json()["id"] == "0001"
    assert state.done == [(Actor("token", "api"), asked, wanted)]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("topics/failover", {}),
        ("topics/failover", {"topic": 7}),
        ("topics/failover", {"topic": "o", "partitions": 0}),
        ("topics/migrate", {}),
        ("relay/reshard", {"shards": 1001}),
        ("relay/reshard", {"shards": "many"}),
        ("outbox/replay", {}),
        ("outbox/replay", {"since": "yesterday"}),
        ("pipeline/apply", {}),
        ("pipeline/apply", {"fields": {"a": 1}}),
    ],
)
def test_a_change_that_is_not_understood_is_refused(site: Site, state: State, call: str, body: dict[str, Any]) -> None:
    answer = site.open().post(f"/api/v1/{call}", json=body | {"reason": "why"})
    assert (answer.status_code, state.done) == (422, [])


def test_a_replay_is_counted_before_it_is_done(site: Site, state: State) -> None:
    answer = site.open().post("/api/v1/outbox/replay", json={"key": "k", "dry_run": True})
    assert (answer.json(), state.done) == ({"count": 2, "dry_run": True}, [])


def test_every_route_is_in_the_openapi_document(site: Site) -> None:
    document = site.open().get("/api/v1/openapi.json").json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(each.method, f"/api/v1{each.path}") for each in ROUTES}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


REQUIRED = defaultdict(tuple, {"/key": ("key",), "/journal": ("topic", "id"), "/journal-list": ("topic",)})
"""Parameters that a call cannot do without."""


def test_reading_calls_of_the_api_answer(site: Site) -> None:
    client = site.open()
    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path:
            given = {"key": EVIL, "topic": "journal", "id": EVIL}
            answer = client.get(f"/api/v1{route.path}", params={name: given[name] for name in REQUIRED[route.path]})
            assert answer.status_code == 200, route.path
            assert answer.headers["content-type"] == "application/json"
            assert "hunter2" not in answer.text


def test_an_outcome_survives_its_way_through_json() -> None:
    action = Action("1", AT, "a", "api", "x", "{}", "", "done", json.dumps({"counts": {}, "fates": [], "error": ""}))
    assert action.result == Outcome({}, [])


def test_rates_are_of_a_counter_that_rises() -> None:
    assert rates_of([(0.0, 0.0), (2.0, 10.0), (2.0, 11.0), (4.0, 3.0), (5.0, 4.0)]) == [(2.0, 5.0), (5.0, 1.0)]
    assert rates_of([(0.0, 1.0)]) == []
