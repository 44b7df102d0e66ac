"""The site on real servers: what was set aside is found, retried and seen to arrive, through the API and the pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import inorder
from inorder.app import App
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.relay.stores.ports import Exceeding
from inorder.settings import Settings
from inorder.web.backend import WebBackend
from inorder.web.site import create_site
from tests.conftest import Eventually
from tests.integration.dead_letters.conftest import Job
from tests.integration.relay.conftest import Bench

# The fixture of the relay's tests.
from tests.integration.relay.conftest import bench as bench  # isort: skip

BASE = "http://127.0.0.1:8090"
FORM = {"origin": BASE, "content-type": "application/x-www-form-urlencoded"}
SCRIPT = '<script>alert("x")</script>'


class Sites:
    """Opens the sites of a test."""

    def __init__(self) -> None:
        self._opened: list[WebBackend] = []

    def __call__(self, settings: Settings) -> TestClient:
        often = settings.web.model_copy(update={"refresh_seconds": 1})
        backend = WebBackend(settings.model_copy(update={"web": often})).__enter__()
        self._opened.append(backend)
        return TestClient(create_site(backend), base_url=BASE, follow_redirects=False, client=("127.0.0.1", 1))

    def close(self) -> None:
        for backend in self._opened:
            backend.__exit__(None, None, None)


@pytest.fixture
def open_site() -> Iterator[Sites]:
    sites = Sites()
    yield sites
    sites.close()


def by_key(bench: Bench, topic: str, key: bytes) -> list[bytes]:
    return [each.value or b"" for each in read_back(bench.properties, topic) if each.key == key]


def test_refused_records_are_found_and_retried_in_order_through_the_api_and_the_form(
    bench: Bench, unique: str, open_site: Sites, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 1)
    settings = bench.settings(leadership="none")
    key = f"{SCRIPT} ä/?&"
    for each in ("api", key):
        bench.publish(*(inorder.Message(unique, key=each, value=value) for value in ("one", "two")))
    with App(settings) as app:
        store = app.relay.exceeded_store(app.database)
        for id in (1, 3):
            store.exceed(Exceeding(id, 2, "RECORD-001", f"too large {SCRIPT}", parks=True))
    client = open_site(settings)
    eventually(lambda: client.get("/readyz").status_code == 200)
    eventually(lambda: client.get("/api/v1/relay").json().get("exceeded") == 2)
    assert "2 records used up their attempts" in client.get("/").text

    listed = client.get("/api/v1/exceeded", params={"key": "api"}).json()["items"]
    assert [(each["topic"], each["key"], each["parks"]) for each in listed] == [(unique, "api", True)]
    page = client.get("/problems/exceeded").text
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    followed = client.get("/key", params={"key": key, "topic": unique}).text
    assert "has not arrived everywhere" in followed
    assert SCRIPT not in followed

    body = {"ids": [listed[0]["id"]], "reason": "limit raised"}
    done = client.post("/api/v1/exceeded/retry", json=body).json()
    assert (done["state"], done["result"]["counts"]) == ("done", {"put back": 1})

    chosen = {"kind": "exceeded", "action": "retry", "code": "RECORD-001", "key": key}
    assert "Retry 1 record?" in client.get("/problems/review", params=chosen).text
    acted = client.post("/problems/act", content=urlencode({**chosen, "reason": SCRIPT}), headers=FORM)
    assert acted.status_code == 303
    entry = client.get(acted.headers["location"]).text
    assert "1 put back" in entry
    assert SCRIPT not in entry
    with inorder.Relay(settings):
        eventually(lambda: bench.count() == 0)
    for each in ("api", key):
        assert by_key(bench, unique, each.encode()) == [b"one", b"two"]
    eventually(lambda: client.get("/api/v1/relay").json().get("exceeded") == 0)
    log = client.get("/api/v1/actions").json()["items"]
    assert [(each["actor"], each["origin"], each["action"], each["reason"]) for each in log] == [
        ("local", "page", "exceeded retry", SCRIPT),
        ("local", "api", "exceeded retry", "limit raised"),
    ]


def test_a_dead_letter_is_found_by_its_key_and_retried_through_the_form(
    postgres_url: str, kafka_bootstrap: str, unique: str, open_site: Sites, eventually: Eventually
) -> None:
    job = Job(postgres_url, kafka_bootstrap, unique)
    job.send(1, n=SCRIPT)
    job.consume()
    client = open_site(job.settings(relay={"group": unique, "leadership": "none"}))
    eventually(lambda: client.get("/api/v1/pipeline").json().get("dead_letters") == 1)
    assert "wrong-type" in client.get("/problems").text
    [letter] = client.get("/api/v1/dead-letters", params={"key": "1"}).json()["items"]
    assert letter["id"] == f"{unique}:0:0"
    shown = client.get(f"/problems/dead-letters/{letter['id']}", params={"pipeline": letter["pipeline"]}).text
    assert SCRIPT not in shown
    assert "&lt;script&gt;" in shown
    form = {"kind": "dead-letters", "action": "retry", "id": letter["id"], "reason": "column is text now"}
    refused = client.post("/problems/act", content=urlencode(form), headers=FORM | {"origin": "https://evil.example"})
    assert (refused.status_code, job.left()) == (403, [0])
    acted = client.post("/problems/act", content=urlencode(form), headers=FORM)
    assert "1 applied" in client.get(acted.headers["location"]).text
    assert (job.left(), job.rows()[1][0]) == ([], SCRIPT)
    eventually(lambda: client.get("/api/v1/pipeline").json().get("dead_letters") == 0)
    client.post("/problems/act", content=urlencode(form | {"action": "discard"}), headers=FORM)
    entry = client.get("/api/v1/actions").json()["items"][0]
    assert (entry["action"], entry["state"]) == ("dead letters discard", "done")


def test_without_servers_the_site_is_up_and_says_so(open_site: Sites, eventually: Eventually) -> None:
    away: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "127.0.0.1:9"},
        "database": {"url": "postgresql+psycopg://nobody@127.0.0.1:9/none?connect_timeout=1"},
    }
    client = open_site(Settings.load(**away))

    def reasons() -> list[str]:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        return [line for line in answer.text.splitlines() if "127.0.0.1:9" in line or "port 9" in line]

    assert client.get("/livez").status_code == 200
    eventually(lambda: len(reasons()) == 2)
    assert client.get("/livez").status_code == 200
    page = client.get("/")
    assert page.status_code == 200
    assert "inorder doctor" in page.text
    assert client.get("/problems").status_code == 200
    assert client.get("/api/v1/exceeded").status_code == 503
