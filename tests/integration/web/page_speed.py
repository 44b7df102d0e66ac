"""How long each page takes with a million exceeded rows and a million dead letters; for people, not for CI.

`python -m tests.integration.web.page_speed [ROWS]` starts its own servers, fills both tables and prints, for each page,
the median and the slowest of several visits in milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from urllib.request import urlopen

import psycopg

from inorder.app import App
from inorder.embedded import Stack
from inorder.settings import Settings
from inorder.web.server import WebService

VISITS = 9
FILL = (
    """INSERT INTO inorder_exceeded (outbox, id, topic, "key", "value", attempts, code, reason, parks)
    SELECT 'outbox', n, 'orders', convert_to('key-' || n % 100000, 'UTF8'), 'value', 5,
           CASE WHEN n % 100000 = 7 THEN 'RECORD-009' ELSE 'RECORD-001' END, 'too large', true
    FROM generate_series(1, {rows}) AS n""",
    """INSERT INTO inorder_dead_letter (pipeline, topic, "partition", "offset", code, detail, "key", "value")
    SELECT 'messages', 'messages', n % 4, n, 'wrong-type', 'n is text',
           convert_to('key-' || n % 100000, 'UTF8'), 'value'
    FROM generate_series(1, {rows}) AS n""",
    "ANALYZE",
)
PATHS = (
    "/",
    "/problems",
    "/problems/exceeded",
    "/problems/exceeded?after={middle}",
    "/problems/exceeded?key=key-77",
    "/problems/exceeded?code=RECORD-001",
    "/problems/exceeded?code=RECORD-009",
    "/problems/exceeded?key=absent",
    "/problems/exceeded?code=absent",
    "/problems/exceeded?topic=orders",
    "/problems/exceeded?topic=absent",
    "/problems/exceeded?code=RECORD-001&key=absent",
    "/problems/exceeded/{middle}",
    "/problems/dead-letters",
    "/problems/dead-letters?key=key-77",
    "/problems/dead-letters?key=absent",
    "/problems/dead-letters?code=absent",
    "/problems/dead-letters?topic=absent",
    "/problems/dead-letters?partition=3",
    "/problems/dead-letters?partition=9",
    "/problems/dead-letters?after=messages:2:{middle}&after_pipeline=messages",
    "/problems/dead-letters/messages:{remainder}:{middle}",
    "/problems/review?kind=exceeded&action=retry&all=1",
    "/problems/review?kind=exceeded&action=retry&code=RECORD-001",
    "/problems/review?kind=exceeded&action=retry&key=key-77",
    "/problems/review?kind=exceeded&action=retry&code=RECORD-009",
    "/problems/review?kind=dead-letters&action=retry&all=1",
    "/problems/review?kind=dead-letters&action=discard&key=key-77",
    "/key?key=key-77",
    "/relays",
    "/pipeline",
    "/topics",
    "/journals",
    "/settings",
    "/actions",
)


def settings_of(stack: Stack) -> Settings:
    servers = stack.settings()
    upsert = {"topic": "messages", "table": "messages", "fields": {"n": "integer"}}
    return Settings.load(
        kafka=dict(servers["kafka"]),
        database=dict(servers["database"]),
        relay={"group": f"speed-{uuid.uuid4().hex[:8]}", "leadership": "none"},
        pipeline={"upsert": upsert},
        web={"listen": "127.0.0.1:0"},
    )


def fill(settings: Settings, url: str, rows: int) -> None:
    with App(settings) as app:
        app.install_schema("native")
        app.install_schema("table")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in FILL:
            connection.execute(statement.format(rows=rows))


def visit(url: str) -> float:
    began = time.perf_counter()
    with urlopen(url, timeout=60) as answer:  # noqa: S310  of our own site
        answer.read()
    return (time.perf_counter() - began) * 1000


def main(rows: int) -> None:
    with Stack(("postgres", "kafka"), durable=False) as stack:
        settings = settings_of(stack)
        fill(settings, settings.database.require_url(), rows)
        with WebService(settings) as site:
            for path in PATHS:
                middle = rows // 2
                address = site.url.rstrip("/") + path.format(middle=middle, remainder=middle % 4)
                visit(address)
                times = [visit(address) for _ in range(VISITS)]
                sys.stdout.write(f"{statistics.median(times):7.0f} {max(times):7.0f}  {path}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
