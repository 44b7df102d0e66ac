"""The site as an ASGI application: access first, then pages, API, health and metrics.

`/livez` touches nothing. `/readyz` has a line for each server that is needed; to someone who is not signed in it says
only which of them is away, because errors name hosts and users.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inorder.model.errors import InorderError
from inorder.observe.endpoint import readiness
from inorder.observe.metrics import CONTENT_TYPE, MetricsRegistry
from inorder.settings.web import WebSettings
from inorder.web import api, pages
from inorder.web.access import (
    COOKIE,
    SAFE_METHODS,
    AccessRefusal,
    Caller,
    User,
    check_origin,
    identify,
    local_path,
    role_of,
    session_of,
)
from inorder.web.backend import WebBackend
from inorder.web.rendering import environment

LARGEST_BODY: Final = 1_000_000
_OPEN: Final = ("/livez", "/readyz", "/login")
_STATIC_PATH: Final = "/static/"
_STATIC: Final = Path(__file__).parent / "static"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_site(backend: WebBackend) -> ASGIApp:
    """The application on an open backend."""
    site = _Site(backend)
    routes = [
        Route("/livez", site.livez),
        Route("/readyz", site.readyz),
        Route("/metrics", site.metrics),
        Route("/login", site.login, methods=["GET", "POST"]),
        Route("/logout", site.logout, methods=["POST"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
        *(Route(api.PREFIX + each.path, partial(site.answer, each), methods=[each.method]) for each in api.ROUTES),
        *(Route(path, partial(site.show, show), methods=[method]) for method, path, show in pages.PAGES),
    ]
    inner = Starlette(routes=routes, exception_handlers={404: site.not_found, 405: site.not_found})
    return _Guard(inner, backend.settings.web, site)


class _TooLargeError(Exception):
    """A body that no form and no call of ours has."""


class _Guard:
    """Lets a request in or not, and gives every response its headers."""

    def __init__(self, inner: ASGIApp, settings: WebSettings, site: _Site) -> None:
        self._inner = inner
        self._settings = settings
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request = Request(scope, receive)
        found = self._admit(request)
        if isinstance(found, Response):
            await found(scope, receive, _with_headers(send))
            return
        scope["user"] = found
        await self._inner(scope, receive, _with_headers(send))

    def _admit(self, request: Request) -> User | Response | None:
        caller = _caller(request)
        if refusal := check_origin(caller):
            return self._site.refuse(request, refusal)
        user = identify(caller, self._settings)
        path = request.url.path
        if isinstance(user, AccessRefusal):
            is_open = path in _OPEN or path.startswith(_STATIC_PATH)
            return None if is_open and user.status == HTTPStatus.UNAUTHORIZED else self._site.refuse(request, user)
        if request.method not in SAFE_METHODS and path not in ("/login", "/logout") and not user.may_act:
            return self._site.refuse(request, AccessRefusal(403, "You may read, and not act."))
        return user


def _caller(request: Request) -> Caller:
    headers: dict[str, list[str]] = {}
    for name, value in request.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    return Caller(request.client.host if request.client else "", request.method, headers)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending


class _Site:
    """The handlers. They call services on threads, because those block."""

    def __init__(self, backend: WebBackend) -> None:
        self._backend = backend
        self._templates = environment()
        self._metrics = MetricsRegistry(_WebCollector(backend))

    # Health and metrics.

    async def livez(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(self, request: Request) -> Response:
        troubles = self._backend.troubles()
        if request.scope["user"] is None:
            troubles = {name: trouble and "It does not answer." for name, trouble in troubles.items()}
        is_ready, text = readiness(troubles)
        return PlainTextResponse(text, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    # The API.

    async def answer(self, route: api.ApiRoute, request: Request) -> Response:
        body: Any = {}
        if request.method == "POST":
            try:
                body = json.loads(await _body(request) or b"{}")
            except (ValueError, RecursionError):
                body = None
            except _TooLargeError:
                return _api_error(413, "The body is too large.")
            if not isinstance(body, dict):
                return _api_error(400, "The body is not a JSON object.")
        asked = api.Asked(self._backend, request.scope["user"], request.path_params, dict(request.query_params), body)
        return await run_in_threadpool(self._answer, route, asked)

    def _answer(self, route: api.ApiRoute, asked: api.Asked) -> Response:
        try:
            return _json(route.answer(asked))
        except InorderError as error:
            return _json(api.error_fields(error), api.status_of(error))

    # Pages.

    async def show(self, page: Callable[[pages.Visit], pages.View], request: Request) -> Response:
        params = parse_qs(request.url.query, keep_blank_values=True)
        if request.method == "POST":
            try:
                # Names of others are in the query of a form: an input would change their control characters.
                params |= parse_qs((await _body(request)).decode(errors="replace"), keep_blank_values=True)
            except (_TooLargeError, ValueError):
                return self.refuse(request, AccessRefusal(413, "The form is too large."))
        visit = pages.Visit(self._backend, request.scope["user"], request.path_params, params)
        return await run_in_threadpool(self._show, page, visit, request)

    def _show(self, page: Callable[[pages.Visit], pages.View], visit: pages.Visit, request: Request) -> Response:
        try:
            view = page(visit)
        except InorderError as error:
            view = pages.View("error.html", {"message": error.message, "hint": error.hint}, api.status_of(error))
        if view.location:
            return RedirectResponse(view.location, HTTPStatus.SEE_OTHER)
        return self._render(view, request)

    def _render(self, view: pages.View, request: Request) -> Response:
        user: User | None = request.scope.get("user")
        around = {
            "user": user,
            "may_act": user is not None and user.may_act,
            "path": request.url.path,
            "navigation": pages.NAVIGATION if user is not None else (),
            "refresh": self._backend.settings.web.refresh_seconds,
            "signs_in": self._backend.settings.web.authenticates and COOKIE in request.cookies,
        }
        text = self._templates.get_template(view.template).render({**around, **(view.values or {})})
        return Response(text, view.status, media_type="text/html")

    # Signing in.

    async def login(self, request: Request) -> Response:
        form: Mapping[str, list[str]] = parse_qs(request.url.query)
        if request.method == "GET":
            return self._sign_in(request, local_path(form.get("next", ["/"])[0]), "")
        try:
            form = parse_qs((await _body(request)).decode(errors="replace"))
        except (_TooLargeError, ValueError):
            return self.refuse(request, AccessRefusal(413, "The form is too large."))
        token, following = form.get("token", [""])[0], local_path(form.get("next", ["/"])[0])
        if role_of(token, self._backend.settings.web) is None:
            return self._sign_in(request, following, "The token is wrong.")
        response = RedirectResponse(following, HTTPStatus.SEE_OTHER)
        is_secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session_of(token), httponly=True, samesite="strict", secure=is_secure)
        return response

    async def logout(self, _request: Request) -> Response:
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE)
        return response

    def _sign_in(self, request: Request, following: str, trouble: str) -> Response:
        status = HTTPStatus.FORBIDDEN if trouble else HTTPStatus.OK
        return self._render(pages.View("login.html", {"next": following, "trouble": trouble}, status), request)

    # Refusals.

    def refuse(self, request: Request, refusal: AccessRefusal) -> Response:
        if request.url.path.startswith(api.PREFIX) or request.url.path == "/metrics":
            response = _api_error(refusal.status, refusal.reason)
            if refusal.status == HTTPStatus.UNAUTHORIZED:
                response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if refusal.status == HTTPStatus.UNAUTHORIZED and request.method == "GET":
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?next={quote(wanted, safe='')}", HTTPStatus.SEE_OTHER)
        view = pages.View("error.html", {"message": refusal.reason, "hint": ""}, HTTPStatus(refusal.status))
        return self._render(view, request)

    async def not_found(self, request: Request, _error: Exception) -> Response:
        return self.refuse(request, AccessRefusal(404, "There is no such page."))


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > LARGEST_BODY:
            raise _TooLargeError
    return bytes(found)


def _json(data: object, status: int = HTTPStatus.OK) -> Response:
    text = json.dumps(data, default=str, ensure_ascii=False)
    return Response(text, status, media_type="application/json")


def _api_error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"code": "", "message": message, "hint": ""}}, status)


class _WebCollector(Collector):
    """The metrics of the site itself; what relay and jobs measure they serve themselves.

    `inorder_web_part_up{part}` is 1 where the last reading of a part of the status worked, and
    `inorder_web_part_age_seconds{part}` is how old it is.
    """

    def __init__(self, backend: WebBackend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("inorder_web_part_up", "Whether a part could be read.", labels=("part",))
        age = GaugeMetricFamily("inorder_web_part_age_seconds", "How old its last reading is.", labels=("part",))
        for name, reading in self._backend.readings().items():
            up.add_metric((name,), not reading.trouble)
            age.add_metric((name,), reading.age_seconds)
        yield up
        yield age
