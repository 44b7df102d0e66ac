"""A page that refreshes itself, in a real browser: it says when its server does not answer, and disturbs nobody.

The services are those of the tests without servers; what is tried here is the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect

from inorder.embedded.server import free_port
from inorder.settings import Settings
from inorder.web.server import WebService
from tests.unit.web.test_site import TOKEN, FakeApp, State

# The fixture of the other tests of pages.
from tests.integration.web.test_browser import browser as browser  # isort: skip

WAIT_MS = 60_000
SIDEWAYS = "Math.max(...[...document.querySelectorAll('#live .scroll')].map(each => each.scrollLeft))"


def site(port: int, **web: Any) -> WebService:
    here = {"listen": f"127.0.0.1:{port}", "refresh_seconds": 1, **web}
    opened: Any = lambda actor: FakeApp(State(), actor)  # noqa: E731
    return WebService(Settings.load(database={"url": "postgresql+psycopg://u:p@h/d"}, web=here), opened)


@contextmanager
def showing(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page whose complaints of a server that is away do not count."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(url)
        yield page


def test_a_page_says_since_when_its_server_does_not_answer(browser: Browser) -> None:
    port = free_port()
    with showing(browser, "about:blank") as page:
        silence = page.get_by_role("alert")
        with site(port) as service:
            page.goto(service.url)
            expect(page.locator(".verdict")).to_be_visible()
            expect(silence).to_have_count(0)
        expect(silence).to_have_text(re.compile(r"^No answer since \d\d:\d\d:\d\d"), timeout=WAIT_MS)
        expect(silence).to_be_in_viewport()
        with site(port):
            expect(silence).to_have_count(0, timeout=WAIT_MS)
            expect(page.locator(".verdict")).to_be_visible()


def test_a_session_that_ended_leads_to_the_sign_in_page(browser: Browser) -> None:
    with site(0, token=TOKEN) as service, showing(browser, f"{service.url}relays") as page:
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_be_visible()
        page.context.clear_cookies()
        page.wait_for_url("**/login?next=%2Frelays")


def test_a_refresh_waits_for_the_keyboard_and_keeps_what_was_scrolled(browser: Browser) -> None:
    with (
        site(0) as service,
        showing(browser, "about:blank", viewport={"width": 360, "height": 700}) as page,
    ):
        page.clock.install()
        page.goto(f"{service.url}problems")
        refreshed: list[str] = []
        page.on("request", lambda request: refreshed.append(request.url))
        link = page.locator("#live a").first
        link.focus()
        page.clock.run_for(5_000)
        expect(link).to_be_focused()
        page.evaluate("for (const each of document.querySelectorAll('#live .scroll')) each.scrollLeft = 40")
        assert page.evaluate(SIDEWAYS) == 40
        page.evaluate("document.getElementById('live').dataset.seen = '1'")
        page.evaluate("document.activeElement.blur()")
        # The browser asks for its icon whenever it likes.
        assert [url for url in refreshed if "/static/" not in url] == []
        page.clock.run_for(1_000)
        expect(page.locator("#live:not([data-seen])")).to_be_visible(timeout=WAIT_MS)
        assert page.evaluate(SIDEWAYS) == 40
