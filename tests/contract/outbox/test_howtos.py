"""The code on the pages of how-tos commits the order and its event together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.contract.outbox.conftest import Tools
from tests.unit.docs.markdown import blocks, page

PAID = [("orders", b"42", b'{"id":42,"paid":true}')]


def pay_of(name: str) -> Callable[..., Any]:
    """The function `pay` of a page."""
    [source] = blocks(page(f"docs/howto/{name}.md"), "python")
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)  # noqa: S102 - our own page
    pay: Callable[..., Any] = namespace["pay"]
    return pay


def place_order(url: str) -> sa.Engine:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)"))
        connection.execute(sa.text("INSERT INTO orders VALUES (42, false)"))
    return engine


def check(tools: Tools, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT paid FROM orders")).scalar_one()
    rows = tools.stored(engine.url.render_as_string(hide_password=False))
    assert [(record.topic, record.key, record.value) for _, record in rows] == PAID


def test_psycopg(tools: Tools, outbox_url: str) -> None:
    engine = place_order(outbox_url)
    pay_of("psycopg")(tools.plain(outbox_url), 42)
    check(tools, engine)


def test_async(tools: Tools, outbox_url: str) -> None:
    engine = place_order(outbox_url)

    async def run() -> None:
        client = create_async_engine(outbox_url, poolclass=sa.NullPool)
        await pay_of("async")(client, 42)
        await client.dispose()

    asyncio.run(run())
    check(tools, engine)


def test_django(tools: Tools, outbox_url: str) -> None:
    engine = place_order(outbox_url)
    with tools.django_configured(outbox_url):
        pay_of("django")(42)
    check(tools, engine)


def test_mysql(tools: Tools, mariadb_url: str) -> None:
    tools.install(mariadb_url)
    engine = place_order(mariadb_url)
    pay_of("mysql")(engine, 42)
    check(tools, engine)
