"""The pages in a real browser, on real servers: what an operator does, by what an operator sees.

A page that runs a script of a record, violates its content security policy or logs an error fails its test.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect

import inorder
from inorder.app import App
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.relay.stores.ports import Exceeding
from inorder.settings import Settings
from inorder.web.pages import NAVIGATION
from inorder.web.server import WebService
from tests.browser import launched
from tests.conftest import Eventually
from tests.integration.dead_letters.conftest import Job
from tests.integration.relay.conftest import Bench

# The fixture of the relay's tests.
from tests.integration.relay.conftest import bench as bench  # isort: skip

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LIMIT = 2000
PAGES = tuple(path for path, _ in NAVIGATION)
WAIT_MS = 60_000

expect.set_options(timeout=WAIT_MS)

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens pages; at the end none of them may have complained."""
    complaints: list[str] = []

    def complain_of_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def complain_of_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):  # violations of the policy are errors there
            complaints.append(message.text)

    with ExitStack() as opened:

        def open_page(url: str, **options: Any) -> Page:
            context: BrowserContext = opened.enter_context(browser.new_context(**options))
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            page.on("dialog", complain_of_dialog)
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            page.on("console", complain_of_console)
            page.goto(url)
            return page

        yield open_page
    assert complaints == []


@pytest.fixture
def serve() -> Iterator[Callable[[Settings], str]]:
    """Starts a site; returns its address without the last slash."""
    with ExitStack() as opened:

        def start(settings: Settings) -> str:
            here = settings.web.model_copy(update={"refresh_seconds": 1, "listen": "127.0.0.1:0"})
            # The broker is shared, and other tests have journals on it.
            ours = settings.journal.model_copy(update={"topic_prefixes": [f"{settings.relay.group}.journal"]})
            update = {"web": here, "journal": ours}
            service = opened.enter_context(WebService(settings.model_copy(update=update)))
            return service.url.rstrip("/")

        yield start


Serve = Callable[[Settings], str]


def by_key(bench: Bench, topic: str, key: str) -> list[bytes]:
    return [each.value or b"" for each in read_back(bench.properties, topic) if each.key == key.encode()]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_a_poisoned_event_is_found_retried_in_order_and_seen_to_arrive(
    bench: Bench, unique: str, serve: Serve, visit: Open, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    settings = bench.settings(leadership="none", max_attempts=1, delivery="at-least-once")
    key = f"order-1 {SCRIPT}"
    values = [b"one", f"{SCRIPT} {secrets.token_hex(LIMIT)}".encode(), b"three"]
    bench.publish(*(inorder.Message(unique, key=key, value=each, headers={"h": SCRIPT}) for each in values))
    with inorder.Relay(settings):
        page = visit(serve(settings))
        expect(page.locator(".verdict h1")).to_have_text("1 record used up its attempts.")
        page.get_by_role("link", name="Open problems").click()
        page.get_by_role("row", name="RECORD-001").get_by_role("link", name="Inspect").click()
        page.locator("tbody tr").get_by_role("link").first.click()
        expect(page.locator(".payload")).to_contain_text(SCRIPT)
        expect(page.locator(".facts")).to_contain_text(SCRIPT)
        page.get_by_role("link", name="Follow the key").click()
        expect(page.locator(".verdict")).to_contain_text("has not arrived everywhere")

        bench.alter_topic(unique, {"max.message.bytes": "1000000"})
        page.go_back()
        page.get_by_role("link", name="Retry…").click()
        expect(page.locator("h1")).to_have_text("Retry 1 record?")
        page.get_by_label("Why").fill(f"limit raised {SCRIPT}")
        page.keyboard.press("Enter")
        expect(page.locator(".verdict h1")).to_have_text("Exceeded retry: 1 arrived")
        eventually(lambda: bench.count() == 0)
        assert by_key(bench, unique, key) == values
        page.get_by_role("link", name=key).click()
        expect(page.locator(".verdict")).to_contain_text("has arrived")
        page.get_by_role("link", name="Flow", exact=True).click()
        expect(page.locator(".verdict h1")).to_have_text("All events have arrived.")


def exceed(settings: Settings, count: int) -> None:
    """Sets the first rows of the outbox aside."""
    with App(settings) as app:
        store = app.relay.exceeded_store(app.database)
        for id in range(1, count + 1):
            store.exceed(Exceeding(id, 2, "RECORD-001", f"too large {SCRIPT}", parks=True))


@pytest.mark.full
def test_every_page_is_text_fits_a_phone_and_can_be_read_without_scripts(
    bench: Bench, kafka_bootstrap: str, unique: str, serve: Serve, visit: Open
) -> None:
    job = Job(bench.url, kafka_bootstrap, unique)
    job.send(1, n=SCRIPT)
    job.send(2, n=7)
    job.consume()
    settings = job.settings(relay={"group": unique, "leadership": "none"})
    bench.publish(*(inorder.Message(unique, key=SCRIPT, value=SCRIPT, headers={"h": SCRIPT}) for _ in range(3)))
    exceed(settings, 2)
    site = serve(settings)
    ready = visit(site)
    expect(ready.locator(".verdict h1")).to_contain_text("things need attention.")
    problems = ("/problems/exceeded", "/problems/exceeded/1", f"/problems/dead-letters/{unique}:0:0")
    paths = (*PAGES, *problems, f"/key?key={quote(SCRIPT)}&topic={unique}", "/key?key=2")
    windows: tuple[tuple[Literal["light", "dark"], int, bool], ...] = (("light", 1280, True), ("dark", 360, False))
    papers = set()
    for scheme, width, scripts in windows:
        page = visit(site, color_scheme=scheme, viewport={"width": width, "height": 800}, java_script_enabled=scripts)
        for path in paths:
            answer = page.goto(site + path)
            assert answer is not None
            assert answer.status == 200, path
            expect(page.locator("main")).to_be_visible()
            assert page.locator("main img").count() == 0, path
            assert overflow(page) <= 0, (path, width)
        papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == len(windows), "light and dark look the same"


@pytest.mark.full
def test_the_page_shows_the_new_leader_after_the_old_one_was_killed(
    bench: Bench, tmp_path: Path, serve: Serve, visit: Open
) -> None:
    """By the lease of the database, whose row says who leads."""
    config = tmp_path / "inorder.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bench.bootstrap}"\n[database]\nurl = "{bench.url}"\n'
        f'[relay]\ngroup = "{bench.group}"\nleadership = "database"\n'
        "[relay.lease]\nlifetime_ms = 1500\nrace_interval_ms = 300\n",
        "utf-8",
    )
    page = visit(f"{serve(Settings.load(config))}/relays")
    owner = page.locator("tbody tr td:nth-child(2)").first
    with ExitStack() as ended:

        def start() -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "inorder.cli", "relay", "run", "--config", str(config)]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)
            ended.callback(process.wait, 60)
            ended.callback(process.kill)
            return process

        first = start()
        expect(owner).to_have_text(re.compile(rf"/{first.pid}/"))
        second = start()
        first.send_signal(signal.SIGKILL)
        expect(owner).to_have_text(re.compile(rf"/{second.pid}/"))


MANY = 10_000
REFUSED = 3
SET_ASIDE = """
INSERT INTO inorder_exceeded
SELECT outbox, n, topic, made.key,
       CASE WHEN n >= %(poisoned)s AND (n - %(poisoned)s) %% 2 = 0 THEN %(large)s ELSE "value" END,
       headers, "partition", "timestamp", created_at, attempts, code, reason, parks, exceeded_at,
       jsonb_set(jsonb_set(original::jsonb, '{id}', to_jsonb(n::text)), '{key,hex}', to_jsonb(encode(made.key, 'hex')))
FROM inorder_exceeded, generate_series(2, %(many)s) AS n,
     LATERAL (SELECT convert_to('key-' || least(n, %(poisoned)s + (n - %(poisoned)s) / 2), 'UTF8') AS key) AS made
WHERE id = 1
"""
"""Copies of row 1 with their own keys; of the last six, three are too large, and one row each waits for them."""


@pytest.mark.full
def test_a_bulk_retry_of_ten_thousand_reports_every_fate(bench: Bench, unique: str, serve: Serve, visit: Open) -> None:
    ensure_topic(bench.properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    settings = bench.settings(leadership="none", max_attempts=1, delivery="at-least-once")
    bench.publish(inorder.Message(unique, key="key-1", value="1"))
    exceed(settings, 1)
    with bench.connect() as connection:
        large = secrets.token_hex(LIMIT).encode()
        connection.execute(SET_ASIDE, {"many": MANY, "poisoned": MANY - 2 * REFUSED + 1, "large": large})
    page = visit(f"{serve(settings)}/problems/exceeded")
    page.get_by_role("link", name="retry…").click()
    expect(page.locator("h1")).to_have_text("Retry 10,000 records?")
    page.get_by_label("Why").fill("limit raised")
    page.get_by_role("button", name="Retry 10,000").click()
    verdict = page.locator(".verdict h1")
    expect(verdict).to_contain_text("10,000 waiting")
    with inorder.Relay(settings):
        expect(verdict).to_contain_text("9,994 arrived")
        expect(verdict).to_contain_text("3 refused again")
        expect(verdict).to_contain_text("3 waiting")
    page.get_by_role("link", name="refused again 3").click()
    expect(page.locator("tbody tr")).to_have_count(REFUSED)
    page.get_by_role("link", name="arrived 9,994").click()
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("501 to 1,000 of 9,994")).to_be_visible()
    records = list(read_back(bench.properties, unique))
    assert len(records) == len({each.key for each in records}) == MANY - 2 * REFUSED


ALL_SCREENSHOTS = os.environ.get("SCREENSHOTS") == "1"
WAITING = 7
"""Rows that stay in the outbox, because the first of their key was refused."""
SCREENSHOTS = Path(__file__).parents[3] / "docs" / "images"


@pytest.mark.full
def test_the_screenshots_of_the_docs_show_what_the_pages_show(
    bench: Bench, kafka_bootstrap: str, unique: str, serve: Serve, visit: Open, tmp_path: Path, eventually: Eventually
) -> None:
    """`SCREENSHOTS=1` makes those of the docs anew; otherwise the pages are only looked at."""
    topic, folder = ("orders", SCREENSHOTS) if ALL_SCREENSHOTS else (unique, tmp_path)
    job = Job(bench.url, kafka_bootstrap, topic)
    bench.alter_topic(topic, {"max.message.bytes": str(LIMIT)})
    relay = {"group": topic, "leadership": "database", "max_attempts": 1, "delivery": "at-least-once"}
    settings = job.settings(relay=relay)
    site = serve(settings)
    page = visit(site)

    def order(key: int, n: object, data: str = "paid") -> inorder.Message:
        return inorder.Message(topic, key=str(key), value={"id": key, "n": n, "data": data})

    with inorder.Relay(settings):
        for step in range(6):
            bench.publish(*(order(key, step) for key in range(100, 400 + 150 * (step % 3))))
            if step == 1:
                bench.publish(order(117, 2, secrets.token_hex(LIMIT)), order(117, 3), order(123, "seven"))
            eventually(lambda: bench.count() <= WAITING)
            job.consume()
            if ALL_SCREENSHOTS:
                page.wait_for_timeout(1200)  # for the look of the chart only, which has a sample a second
        expect(page.locator(".verdict h1")).to_contain_text("things need attention.")
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        seen = visit(site, color_scheme=scheme, viewport={"width": 1280, "height": 720})
        for name, path in (("flow", "/"), ("key", f"/key?key=117&topic={topic}"), ("problems", "/problems")):
            seen.goto(site + path)
            expect(seen.locator("main")).to_contain_text("117" if name == "key" else "attempts")
            seen.screenshot(path=folder / f"web-{name}-{scheme}.png", full_page=True)
            assert (folder / f"web-{name}-{scheme}.png").stat().st_size < 150_000
