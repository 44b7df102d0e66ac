"""Who may do what: pure decisions on the facts of a request.

| how a request says who sends it                            | then                                                    |
|---|---|
| `Authorization: Bearer` with `web.token`, `web.read_token` | may act, may read; any other token gets nothing         |
| `web.trusted_header`, from an address of `trusted_proxies` | may read, and act if named in `web.acting_users`        |
| the cookie of the sign-in page                             | as the token it was made from                           |
| nothing, and nothing is configured                         | may act, if the request names this machine as its host  |

The host is checked because a page of another site may have its own name resolved to 127.0.0.1, and would then be of the
same origin as we are. A request that changes something must come from a page of ours (`check_origin`), or be JSON,
which the page of another site cannot send without asking first.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address, ip_network
from typing import Final, Literal
from urllib.parse import urlsplit

from inorder.settings.web import WebSettings

Role = Literal["read", "act"]

COOKIE: Final = "inorder_session"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BEARER: Final = "bearer "
_OURS: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class User:
    """Who sends a request."""

    name: str
    role: Role

    @property
    def may_act(self) -> bool:
        return self.role == "act"


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request is not answered."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Caller:
    """The facts of a request that decide on access; names of headers are in lower case."""

    peer: str
    method: str
    headers: Mapping[str, Sequence[str]]

    def header(self, name: str) -> str:
        """The value of a header; empty unless it was sent exactly once."""
        found = self.headers.get(name.lower(), ())
        return found[0] if len(found) == 1 else ""


def identify(caller: Caller, settings: WebSettings) -> User | AccessRefusal:
    """Who sends the request; a refusal where that is not known."""
    found = _identify(caller, settings)
    if isinstance(found, User) and settings.read_only:
        return User(found.name, "read")
    return found


def _identify(caller: Caller, settings: WebSettings) -> User | AccessRefusal:
    if "authorization" in caller.headers:
        given = caller.header("authorization")
        role = role_of(given[len(_BEARER) :].strip(), settings) if given.lower().startswith(_BEARER) else None
        return AccessRefusal(401, "The token is wrong.") if role is None else User("token", role)
    if (name := _passed_by_proxy(caller, settings)) is not None:
        acts = name in settings.acting_users or "*" in settings.acting_users
        return User(name, "act" if acts else "read")
    if (role := _role_of_cookie(caller, settings)) is not None:
        return User("token", role)
    if settings.authenticates:
        return AccessRefusal(401, "Sign in first.")
    if not _names_this_machine(caller.header("host")):
        return AccessRefusal(403, "The request names another host than this machine.")
    return User("local", "act")


def role_of(token: str, settings: WebSettings) -> Role | None:
    """What a token allows; None for one that is wrong."""
    given = token.encode()
    # Each is compared whole, so that the time says nothing about how much is right.
    acts = settings.token is not None and hmac.compare_digest(given, settings.token.get_secret_value().encode())
    reads = settings.read_token is not None and hmac.compare_digest(
        given, settings.read_token.get_secret_value().encode()
    )
    if acts:
        return "act"
    return "read" if reads else None


def session_of(token: str) -> str:
    """The cookie for a token: it proves that the token was known and does not reveal it."""
    return hmac.new(token.encode(), b"inorder web session", hashlib.sha256).hexdigest()


def check_origin(caller: Caller) -> AccessRefusal | None:
    """Refuses a request that changes something and was made by the page of another site."""
    if caller.method in SAFE_METHODS:
        return None
    refusal = AccessRefusal(403, "The request comes from another site.")
    if site := caller.header("sec-fetch-site"):
        return None if site in _OURS else refusal
    if "origin" in caller.headers:
        host = caller.header("host")
        return None if host and urlsplit(caller.header("origin")).netloc == host else refusal
    # No browser: those send one of the two with a form.
    is_json = caller.header("content-type").partition(";")[0].strip().lower() == "application/json"
    return None if is_json else AccessRefusal(403, "A form must come from a page of this site; else send JSON.")


def _passed_by_proxy(caller: Caller, settings: WebSettings) -> str | None:
    if not settings.trusted_header:
        return None
    name = caller.header(settings.trusted_header).strip()
    return name if name and _is_trusted(caller.peer, settings.trusted_proxies) else None


def _is_trusted(peer: str, networks: Sequence[str]) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return any(address in ip_network(each, strict=False) for each in networks)


def _role_of_cookie(caller: Caller, settings: WebSettings) -> Role | None:
    try:
        sent = SimpleCookie(caller.header("cookie")).get(COOKIE)
    except CookieError:
        return None
    if sent is None:
        return None
    tokens: tuple[tuple[Role, object], ...] = (("act", settings.token), ("read", settings.read_token))
    for role, token in tokens:
        secret = getattr(token, "get_secret_value", str)()
        if secret and hmac.compare_digest(sent.value.encode(), session_of(secret).encode()):
            return role
    return None


def _names_this_machine(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def local_path(wanted: str) -> str:
    """Where to go after signing in: a path of this site, or its first page.

    >>> local_path("/key?key=1"), local_path("//evil.example"), local_path("/\\\\evil.example")
    ('/key?key=1', '/', '/')
    """
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_ours and wanted.isprintable() else "/"
