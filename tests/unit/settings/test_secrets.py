"""No print of the settings, and no refusal, shows a password."""

from __future__ import annotations

import importlib
import json
import pkgutil
import traceback
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inorder
from inorder.database.credentials import parse_url
from inorder.model.errors import ConfigurationError
from inorder.model.secrets import is_ambiguous, is_secret, mask_text, mask_url
from inorder.settings import Settings

SECRET = "hunter2-Geheim"
URL = f"postgresql+psycopg://shop:{SECRET}@db:5432/shop"
KAFKA_SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.pem",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.pasword",
    "SASL.PASSWORD",
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
        f"postgresql+psycopg://shop:{SECRET}#?/hash@db/shop",
        f"postgresql+psycopg://shop:{SECRET}%40with-an-at@db/shop",
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
        {"database": {"url": f"shop:{SECRET}@db://"}},
        {"database": {"url": f"postgresql+psycopg://shop:p@{SECRET}@db/shop"}},
        {"database": {"url": f"postgresql+psycopg://shop:p@a:{SECRET}@db/shop"}},
        {"database": {"url": f"postgresql+psycopg://shop:p@a/{SECRET}@db/shop"}},
        {"database": {"url": f"postgresql+psycopg://shop:p@a?{SECRET}@db/shop"}},
        {"database": {"url": f"postgresql+psycopg://shop:{SECRET}/shop"}},
        {"database": {"read_only_url": f"postgres://shop:{SECRET}@db/shop"}},
        {"journal": {"store": f"postgres://shop:{SECRET}@db/shop"}},
        {"journal": {"store": f"scylla://shop:{SECRET}@db/shop"}},
        {"journal": {"store": [SECRET]}},
        *({"journal": {"store": f"cassandra://shop:p{mark}{SECRET}@db/shop"}} for mark in "/?#"),
        *({"redis": {"url": f"redis://:p{mark}{SECRET}@cache/0"}} for mark in "/?#"),
        {"redis": {"url": f"redis://:12/{SECRET}@cache/0"}},
        {"relay": {"strategy": f"postgresql://shop:{SECRET}@db"}},
        {"relay": {"group": f"password={SECRET}!"}},
        {"pipeline": {"spark": {"spark.hadoop.fs.s3a.secret.key": [SECRET], "x": 1}}},
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


@pytest.mark.parametrize(
    "overrides",
    [
        {"pipeline": {"spark": {"spark.hadoop.fs.s3a.secret.key": SECRET}}},
        {
            "pipeline": {
                "spark": {"spark.driver.extraJavaOptions": f"-Djavax.net.ssl.trustStorePassword={SECRET} -Da=b"}
            }
        },
        {"kafka": {"sasl.oauthbearer.token.endpoint.url": f"https://shop:{SECRET}@idp/token"}},
        {"topics": {"orders": {"kafka": {"sasl.password": SECRET}}}},
        {"pipeline": {"kafka_java": {"sasl.jaas.config": f'Login required password="{SECRET}";'}}},
        {"journal": {"store": f"cassandra://shop:{SECRET}@db:9042/journals"}},
    ],
)
def test_config_show_masks_secrets_wherever_they_may_be(overrides: dict[str, Any]) -> None:
    assert SECRET not in json.dumps([asdict(row) for row in Settings.load(**overrides).describe()])


@pytest.mark.parametrize("mark", ["@", "/", "?", "#", ":", "%"])
@pytest.mark.parametrize(
    ("section", "scheme"),
    [
        ("database.url", "postgresql+psycopg"),
        ("database.url", "mysql+pymysql"),
        ("redis.url", "redis"),
        ("journal.store", "cassandra"),
    ],
)
def test_an_unescaped_character_in_a_password_is_refused_or_is_part_of_it(
    section: str, scheme: str, mark: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Either the driver gets the whole password, or no driver sees the URL and nothing of it is shown."""
    name, field = section.split(".")
    url = f"{scheme}://shop:first{mark}{SECRET}@127.0.0.1:1/shop"
    overrides: dict[str, Any] = {name: {field: url}}
    if is_ambiguous(url):
        with pytest.raises(ConfigurationError, match="@ as %40") as caught:
            Settings.load(**overrides)
        assert SECRET not in str(caught.value)
        return
    settings = Settings.load(**overrides)
    assert all(SECRET not in text for text in every_print(settings))
    assert _password_of(url) == f"first{mark}{SECRET}"


def _password_of(url: str) -> str | None:
    return parse_url(url).password if "+" in url else urlsplit(url).password


def _dataclasses() -> Iterator[type]:
    for found in pkgutil.walk_packages(inorder.__path__, "inorder."):
        if ".bench" in found.name or found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        yield from (each for each in vars(module).values() if isinstance(each, type) and is_dataclass(each))


def test_no_class_shows_a_url_or_properties_of_a_client() -> None:
    """Such a value ends in a traceback, or in the log of a Spark task, by its repr."""
    shown = {
        f"{each.__module__}.{each.__name__}.{field.name}"
        for each in _dataclasses()
        for field in fields(each)
        if field.repr and (field.name in ("url", "properties", "kafka", "java", "password"))
    }
    assert shown == set()


@pytest.mark.parametrize(
    "name",
    ["bootstrap.servers", "sasl.username", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url", "linger.ms"],
)
def test_other_properties_are_shown(name: str) -> None:
    assert not is_secret(name)


def test_a_text_of_a_driver_is_masked() -> None:
    text = f"cannot open redis://:{SECRET}@cache/0 or host=db password={SECRET} dbname=shop"
    assert mask_text(text) == "cannot open redis://:***@cache/0 or host=db password=*** dbname=shop"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2", "mongodb"])
def test_a_scheme_without_its_driver_is_refused_with_those_that_have_one(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"begins with postgresql\+psycopg://"):
        Settings.load(database={"url": f"{scheme}://shop@db/shop"})


@given(password=st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), min_size=1))
def test_no_password_passes_the_mask(password: str) -> None:
    shown = mask_url(f"postgresql+psycopg://USER:{password}@HOST/DB")
    assert shown == "postgresql+psycopg://USER:***@HOST/DB"


@given(url=st.text())
def test_any_text_can_be_masked_and_judged(url: str) -> None:
    assert isinstance(mask_url(url), str)
    assert isinstance(is_ambiguous(url), bool)
