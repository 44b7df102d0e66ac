"""No print of the settings, and no refusal, shows a password."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.settings.section import mask_password

SECRET = "hunter2-Geheim"
URL = f"postgresql+psycopg://shop:{SECRET}@db:5432/shop"
KAFKA_SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.pem",
]


def every_print(settings: Settings) -> list[str]:
    """All ways in which settings are turned into text."""
    return [
        repr(settings),
        str(settings),
        str(settings.database),
        repr(settings.kafka),
        str(settings.database.url),
        f"{settings.database.url!r}",
        settings.model_dump_json(),
        str(settings.model_dump()),
        json.dumps([asdict(row) for row in settings.describe()]),
        str(settings.describe()),
    ]


@pytest.mark.parametrize(
    "url",
    [
        URL,
        f"postgresql+psycopg://:{SECRET}@db/shop",
        f"postgresql+psycopg://shop:{SECRET}@with-an-at@db/shop",
        f"postgresql+psycopg://shop@db/shop?password={SECRET}",
        f"postgresql+psycopg://shop@db/shop?sslpassword={SECRET}&sslmode=require",
        f"mysql+pymysql://shop:{SECRET}@db/shop?charset=utf8mb4",
    ],
)
def test_no_print_shows_the_database_password(url: str) -> None:
    settings = Settings.load(database={"url": url})
    for text in every_print(settings):
        assert SECRET not in text
    assert settings.database.require_url() == url


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@cache:6379/0",
        f"rediss://shop:{SECRET}@cache:6379/0",
        f"redis://cache/0?password={SECRET}",
        f"unix://shop:{SECRET}@/run/redis.sock?db=1",
    ],
)
def test_no_print_shows_the_redis_password(url: str) -> None:
    settings = Settings.load(redis={"url": url})
    for text in [*every_print(settings), str(settings.redis), repr(settings.redis.url)]:
        assert SECRET not in text
    assert settings.redis.require_url() == url


def test_without_a_redis_url_the_hint_says_where_to_set_it() -> None:
    with pytest.raises(ConfigurationError, match="INORDER_REDIS__URL"):
        Settings.load().redis.require_url()


@pytest.mark.parametrize("scheme", ["http", "memcached", "redis-sentinel"])
def test_a_redis_url_of_another_scheme_is_refused_with_those_that_are_taken(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"begins with redis://, rediss://, unix://"):
        Settings.load(redis={"url": f"{scheme}://cache"})


def test_the_rest_of_the_url_is_shown() -> None:
    settings = Settings.load(database={"url": URL})
    assert str(settings.database.url) == "postgresql+psycopg://shop:***@db:5432/shop"
    row = next(row for row in settings.describe() if row.key == "database.url")
    assert row.value == "postgresql+psycopg://shop:***@db:5432/shop"


@pytest.mark.parametrize("name", KAFKA_SECRETS)
def test_no_print_shows_a_kafka_secret_and_the_client_gets_it(name: str) -> None:
    settings = Settings.load(kafka={name: SECRET, "sasl.username": "shop"})
    for text in every_print(settings):
        assert SECRET not in text
    assert settings.kafka.properties[name] == SECRET
    assert "shop" in repr(settings.kafka)


def test_a_secret_from_a_variable_is_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_KAFKA__SASL_PASSWORD", SECRET)
    monkeypatch.setenv("INORDER_DATABASE__URL", URL)
    settings = Settings.load()
    assert settings.kafka.properties["sasl.password"] == SECRET
    assert all(SECRET not in text for text in every_print(settings))


@pytest.mark.parametrize(
    "overrides",
    [
        {"database": {"url": f"postgres://shop:{SECRET}@db/shop"}},
        {"database": {"url": f"shop:{SECRET}@db"}},
        {"database": {"url": SECRET}},
        {"database": {"url": [SECRET]}},
        {"redis": {"url": f"http://shop:{SECRET}@cache"}},
        {"redis": {"url": SECRET}},
        {"redis": {"url": [SECRET]}},
        {"kafka": {"sasl.password": [SECRET]}},
        {"kafka": {"ssl.key.password": {"a": [SECRET]}}},
        {"database": {"url": URL}, "relay": {"batch_size": 0}},
        {"kafka": {"sasl.password": SECRET, "acks": 1}},
    ],
)
def test_no_refusal_shows_a_secret(overrides: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(**overrides)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2", "mongodb"])
def test_a_scheme_without_its_driver_is_refused_with_those_that_have_one(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"begins with postgresql\+psycopg://"):
        Settings.load(database={"url": f"{scheme}://shop@db/shop"})


@given(password=st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), min_size=1))
def test_no_password_passes_the_mask(password: str) -> None:
    shown = mask_password(f"postgresql+psycopg://USER:{password}@HOST/DB")
    assert shown == "postgresql+psycopg://USER:***@HOST/DB"
