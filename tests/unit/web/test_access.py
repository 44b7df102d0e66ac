"""Who may do what, decided on the facts of a request."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.settings.web import WebSettings
from inorder.web.access import COOKIE, AccessRefusal, Caller, User, check_origin, identify, local_path, session_of

ACT, READ = "act-token-0123456789", "read-token-0123456789"
OPEN = WebSettings()
TOKENS = WebSettings(token=SecretStr(ACT), read_token=SecretStr(READ))
PROXIED = WebSettings(trusted_header="X-User", trusted_proxies=["10.0.0.0/8"], acting_users=["ann"])


def caller(peer: str = "127.0.0.1", method: str = "GET", **headers: str | list[str]) -> Caller:
    named = {name.replace("_", "-"): [value] if isinstance(value, str) else value for name, value in headers.items()}
    return Caller(peer, method, {"host": ["127.0.0.1:8090"], **named})


@pytest.mark.parametrize(
    ("settings", "sent", "found"),
    [
        (OPEN, {}, User("local", "act")),
        (OPEN, {"host": "localhost:1"}, User("local", "act")),
        (OPEN, {"host": "[::1]:1"}, User("local", "act")),
        (OPEN, {"host": "evil.example"}, 403),
        (OPEN, {"host": "127.0.0.1.evil.example"}, 403),
        (OPEN, {"host": ["127.0.0.1", "evil.example"]}, 403),
        (OPEN, {"authorization": "Bearer anything"}, 401),
        (TOKENS, {}, 401),
        (TOKENS, {"authorization": f"Bearer {ACT}"}, User("token", "act")),
        (TOKENS, {"authorization": f"bearer {READ}"}, User("token", "read")),
        (TOKENS, {"authorization": f"Bearer {ACT}x"}, 401),
        (TOKENS, {"authorization": "Bearer "}, 401),
        (TOKENS, {"authorization": f"Basic {ACT}"}, 401),
        (TOKENS, {"authorization": [f"Bearer {ACT}", f"Bearer {ACT}"]}, 401),
        (TOKENS, {"cookie": f"{COOKIE}={session_of(ACT)}"}, User("token", "act")),
        (TOKENS, {"cookie": f"{COOKIE}={session_of(READ)}"}, User("token", "read")),
        (TOKENS, {"cookie": f"{COOKIE}={ACT}"}, 401),
        (TOKENS, {"cookie": f"{COOKIE}={session_of('')}"}, 401),
        (TOKENS, {"cookie": "\x00;;=="}, 401),
        (OPEN, {"x_user": "ann", "host": "evil.example"}, 403),
        (PROXIED, {"peer": "10.1.2.3", "x_user": "ann"}, User("ann", "act")),
        (PROXIED, {"peer": "10.1.2.3", "x_user": "bob"}, User("bob", "read")),
        (PROXIED, {"peer": "10.1.2.3", "x_user": ["ann", "bob"]}, 401),
        (PROXIED, {"peer": "10.1.2.3", "x_user": " "}, 401),
        (PROXIED, {"peer": "192.168.0.1", "x_user": "ann"}, 401),
        (PROXIED, {"peer": "", "x_user": "ann"}, 401),
        (WebSettings(read_only=True), {}, User("local", "read")),
        (TOKENS.model_copy(update={"read_only": True}), {"authorization": f"Bearer {ACT}"}, User("token", "read")),
    ],
)
def test_who_sends_a_request(settings: WebSettings, sent: dict[str, Any], found: User | int) -> None:
    answer = identify(caller(**sent), settings)
    assert (answer.status if isinstance(answer, AccessRefusal) else answer) == found


@pytest.mark.parametrize(
    ("method", "headers", "is_allowed"),
    [
        ("GET", {"origin": "https://evil.example"}, True),
        ("POST", {"origin": "http://127.0.0.1:8090"}, True),
        ("POST", {"origin": "http://127.0.0.1:9999"}, False),
        ("POST", {"origin": "https://evil.example"}, False),
        ("POST", {"origin": "null"}, False),
        ("POST", {"origin": ""}, False),
        ("POST", {"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8090"}, True),
        ("POST", {"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1:8090"}, False),
        ("POST", {"sec_fetch_site": "same-site"}, False),
        ("POST", {}, False),
        ("POST", {"content_type": "application/x-www-form-urlencoded"}, False),
        ("POST", {"content_type": "text/plain"}, False),
        ("POST", {"content_type": "application/json; charset=utf-8"}, True),
        ("POST", {"content_type": "application/json", "origin": "https://evil.example"}, False),
        ("DELETE", {"origin": "https://evil.example"}, False),
    ],
)
def test_a_page_of_another_site_changes_nothing(method: str, headers: dict[str, Any], is_allowed: bool) -> None:
    assert (check_origin(caller(method=method, **headers)) is None) == is_allowed


def test_signing_in_leads_to_a_page_of_ours_only() -> None:
    wanted = {"/key?key=a": "/key?key=a", "//e.example": "/", "https://e.example": "/", "/\\e.example": "/", "": "/"}
    assert {each: local_path(each) for each in (*wanted, "/a\r\nSet-Cookie: x")} == {
        **wanted,
        "/a\r\nSet-Cookie: x": "/",
    }


@pytest.mark.parametrize(
    ("web", "words"),
    [
        ({"listen": "0.0.0.0:8090"}, "no authentication"),
        ({"listen": "example.org:1"}, "no authentication"),
        ({"listen": "[::]:1"}, "no authentication"),
        ({"token": ACT, "read_token": ACT}, "readers could act"),
        ({"acting_users": ["ann"]}, "web.trusted_header, which is not set"),
        ({"token": "short"}, "at least 16 characters"),
        ({"trusted_proxies": ["here"]}, "addresses or networks"),
    ],
)
def test_settings_that_would_let_anyone_in_are_refused(web: dict[str, Any], words: str, empty_place: None) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(web=web)
    assert words in str(refused.value)
    assert ACT not in str(refused.value)


def test_other_addresses_are_allowed_with_authentication(empty_place: None) -> None:
    for web in ({"listen": "0.0.0.0:1", "token": ACT}, {"listen": "[::]:1", "trusted_header": "X-User"}):
        assert Settings.load(web=web).web.authenticates
    assert all(Settings.load(web={"listen": each}).web.is_loopback for each in ("8090", "[::1]:1", "localhost:1"))
