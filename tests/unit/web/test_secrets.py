"""No page, answer of the API, health check, metric or log of the site shows a secret, while every server is away.

The services are the real ones: what they cannot reach, or cannot read, is in the texts of their errors.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from inorder.model.errors import ConfigurationError
from inorder.observe import configure_logs
from inorder.settings import Settings
from inorder.web.api import ROUTES
from inorder.web.backend import WebBackend
from inorder.web.pages import PAGES
from inorder.web.site import create_site
from tests.unit.cli.test_secrets import CLOSED, SECRET, SETTINGS
from tests.unit.settings.test_secrets import KAFKA_SECRETS
from tests.unit.web.test_site import Site

# The fixtures of the other tests of the site.
from tests.unit.web.test_site import site as site  # isort: skip
from tests.unit.web.test_site import state as state  # isort: skip

ACTING = {"authorization": f"Bearer {SECRET}-act"}
BASE = "http://127.0.0.1:8090"
GIVEN = {"name": "orders", "id": "1", "kind": "exceeded"}
"""What the places in a path are filled with."""
ASKED = {"key": "42", "topic": "orders", "id": "orders:0:1", "kind": "exceeded", "action": "retry", "all": "1"}
TOKEN = f"{SECRET}-act"
SECRETS: dict[str, dict[str, Any]] = {
    "web": {"token": TOKEN, "read_token": f"{SECRET}-read", "refresh_seconds": 1},
    "redis": {"url": f"redis://:{SECRET}@{CLOSED}/0"},
    "journal": {"store": f"cassandra://shop:{SECRET}@{CLOSED}/shop"},
    "topics": {"orders": {"kafka": {"sasl.password": SECRET}}},
    "pipeline": {
        "kafka_java": {"sasl.jaas.config": f'Login required username="u" password="{SECRET}";'},
        "spark": {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.ssl.keyPassword": SECRET},
    },
}
KAFKA: dict[str, dict[str, Any]] = {
    "a server that is away": {"sasl.password": SECRET, "sasl.oauthbearer.client.secret": SECRET},
    "a wrong private key": {"security.protocol": "ssl", "ssl.key.pem": f"-----BEGIN PRIVATE KEY----- {SECRET}"},
    "properties of all kinds": {name: f"{SECRET}-{name}" for name in KAFKA_SECRETS if name.islower()},
}
DATABASES = [
    "postgresql+psycopg://shop:{secret}@{closed}/shop",
    "mysql+pymysql://shop:{secret}@{closed}/shop",
    "postgresql+psycopg://shop@{closed}/shop?password={secret}",
]


def every_text(client: TestClient) -> dict[str, str]:
    """What the site answers, by path."""
    paths = [path for method, path, _ in PAGES if method == "GET"]
    paths += [f"/api/v1{each.path}" for each in ROUTES if each.method == "GET"]
    found = {}
    for path in ("/livez", "/readyz", "/metrics", *paths):
        answer = client.get(path.format(**GIVEN), params=ASKED, headers=ACTING)
        assert answer.status_code not in (401, 403), path
        found[path] = f"{answer.text} {answer.headers}"
    for route in (each for each in ROUTES if each.method == "POST"):
        body = {"all": True, "topic": "orders", "fields": {"a": "text"}, "kind": "topic", "name": "orders", "id": "1"}
        answer = client.post(f"/api/v1{route.path}", json=body | {"reason": "why"}, headers=ACTING)
        assert answer.status_code not in (401, 403), route.path
        found[route.path] = answer.text
    return found


AWAY, *OTHERS = zip(KAFKA, DATABASES, strict=True)


@pytest.mark.parametrize(("kind", "url"), [pytest.param(*AWAY, marks=pytest.mark.full), *OTHERS])
def test_the_site_shows_no_secret_anywhere(kind: str, url: str, empty_place: None) -> None:
    servers: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap.servers": CLOSED, **KAFKA[kind]},
        "database": {"url": url.format(secret=SECRET, closed=CLOSED)},
    }
    settings = Settings.load(None, **SECRETS, **servers)
    logs = io.StringIO()
    configure_logs("debug", "json", logs)
    with WebBackend(settings) as backend:
        client = TestClient(create_site(backend), base_url=BASE, follow_redirects=False, client=("127.0.0.1", 1))
        texts = every_text(client)
    for path, text in texts.items():
        assert SECRET not in text, path
    assert "***" in texts["/settings"]
    assert SECRET not in logs.getvalue()


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_page_of_settings_shows_no_secret_of_any_kind(kind: str, site: Site, empty_place: None) -> None:
    """What settings refuse, `inorder web` refuses as every command does: `tests/unit/cli/test_secrets.py`."""
    Path("inorder.toml").write_text(SETTINGS[kind] + "\n", "utf-8")
    with suppress(ConfigurationError):
        client = site.open(Settings.load())
        for path in ("/settings", "/api/v1/settings"):
            answer = client.get(path)
            assert (answer.status_code, SECRET in answer.text) == (200, False), path
