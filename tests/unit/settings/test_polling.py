"""[relay.polling], [relay.lease], [health] and the ways to the database: defaults, refusals, contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.settings.servers import address_of

POLLING = {"strategy": "polling", "layout": "trendyol"}
URL = "postgresql+psycopg://writer@host/db"


def refused(**overrides: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(**overrides)
    return caught.value.message


def test_defaults_of_the_strategy_polling_are_those_of_the_original_example() -> None:
    relay = Settings.load(relay=POLLING).relay
    assert (relay.table, relay.batch_size, relay.shards) == ("outbox_events", 5000, 1)
    assert relay.delivery == "exactly-once"
    polling = relay.polling
    assert (polling.queue_wait_ms, polling.missing_batch_size, polling.missing_wait_ms) == (100, 500, 20_000)
    assert (polling.missing_max_retries, polling.broker_max_retries, polling.redelivery_delay_ms) == (5, 5, 250)
    assert polling.keep_order
    assert polling.is_publishing_on
    breaker = polling.breaker
    assert (breaker.is_enabled, breaker.threshold, breaker.open_seconds, breaker.half_open_attempts) == (
        True,
        3,
        600,
        1,
    )


def test_the_layout_trendyol_serves_drain_as_well() -> None:
    relay = Settings.load(relay={"layout": "trendyol"}).relay
    assert (relay.strategy, relay.table, relay.batch_size) == ("drain", "outbox_events", 10_000)


def test_what_is_set_stays_as_it_is() -> None:
    relay = Settings.load(relay={**POLLING, "table": "shop.events", "batch_size": 7}).relay
    assert (relay.table, relay.batch_size) == ("shop.events", 7)


def test_a_batch_of_mark_purge_is_what_may_be_in_flight_unless_it_is_set() -> None:
    assert Settings.load(relay={"strategy": "mark-purge"}).relay.batch_size == 1000
    assert Settings.load(relay={"strategy": "mark-purge", "in_flight_limit": 20}).relay.batch_size == 20


@pytest.mark.parametrize(
    ("overrides", "first", "second"),
    [
        ({"relay": {"strategy": "polling"}}, "relay.strategy = 'polling'", "relay.layout = 'native'"),
        ({"relay": {**POLLING, "layout": "goharvest"}}, "relay.strategy = 'polling'", "relay.layout = 'goharvest'"),
        ({"relay": {**POLLING, "strategy": "mark-purge"}}, "relay.strategy", "relay.layout = 'trendyol'"),
        ({"relay": {**POLLING, "strategy": "topic-lock"}}, "relay.strategy", "relay.layout = 'trendyol'"),
        ({"relay": {**POLLING, "shards": 2}}, "relay.shards = 2", "relay.strategy = 'polling'"),
        ({"relay": {**POLLING, "retention_days": 3}}, "relay.retention_days = 3", "relay.layout"),
        (
            {"relay": {**POLLING, "polling": {"missing_table": "outbox_events"}}},
            "relay.table",
            "relay.polling.missing_table",
        ),
        (
            {"relay": {**POLLING, "table": "s.box", "polling": {"missing_table": "x", "offset_table": "s.x"}}},
            "relay.polling.missing_table",
            "relay.polling.offset_table",
        ),
        (
            {"relay": {"lease": {"lifetime_ms": 3000, "race_interval_ms": 5000}}},
            "relay.lease.lifetime_ms = 3000",
            "relay.lease.race_interval_ms = 5000",
        ),
        (
            {"relay": {"lease": {"lifetime_ms": 3000, "race_interval_ms": 2500}}},
            "relay.lease.lifetime_ms = 3000",
            "relay.lease.race_interval_ms = 2500",
        ),
        (
            {"relay": {"lease": {"lifetime_ms": 3000, "check_interval_ms": 501}}},
            "relay.lease.lifetime_ms = 3000",
            "relay.lease.check_interval_ms = 501",
        ),
        (
            {"relay": {"strategy": "mark-purge", "batch_size": 2000}},
            "relay.batch_size = 2000",
            "relay.in_flight_limit = 1000",
        ),
        (
            {"relay": POLLING, "kafka": {"queue.buffering.max.messages": 4999}},
            "relay.batch_size = 5000",
            'kafka."queue.buffering.max.messages" = 4999',
        ),
        ({"relay": POLLING, "kafka": {"acks": 1}}, 'kafka."acks"', "relay.delivery"),
        (
            {"database": {"url": URL, "read_only_url": "postgresql+psycopg://reader@replica/db"}},
            "database.read_only_url",
            "relay.strategy = 'drain'",
        ),
        (
            {"relay": POLLING, "database": {"url": URL, "read_only_url": "mysql+pymysql://reader@replica/db"}},
            "database.read_only_url (mysql+pymysql)",
            "database.url (postgresql+psycopg)",
        ),
    ],
)
def test_a_contradiction_names_both_keys(overrides: dict[str, Any], first: str, second: str) -> None:
    message = refused(**overrides)
    assert first in message
    assert second in message


@pytest.mark.parametrize(
    "lease",
    [
        {"lifetime_ms": 60_000, "race_interval_ms": 30_000, "check_interval_ms": 100},
        {"lifetime_ms": 3000, "race_interval_ms": 2499, "check_interval_ms": 500},
        {"name": "shop:MasterPodLock", "owner": "host"},
    ],
)
def test_leases_that_can_be_kept_are_taken(lease: dict[str, Any]) -> None:
    assert Settings.load(relay={"lease": lease}).relay.lease.model_dump().items() >= lease.items()


def test_the_same_names_in_other_schemas_are_other_tables() -> None:
    Settings.load(relay={**POLLING, "table": "a.events", "polling": {"missing_table": "b.events"}})


@pytest.mark.parametrize(
    ("polling", "expected"),
    [
        ({"missing_wait_ms": 0}, "relay.polling.missing_wait_ms = 0 in the overrides is wrong: expected 1 or more."),
        ({"queue_wait_ms": "soon"}, "expected a whole number"),
        ({"keep_order": "perhaps"}, "expected true or false"),
        ({"missing_table": "drop table"}, "expected letters, digits and _"),
        ({"breaker": {"threshold": 0}}, "relay.polling.breaker.threshold = 0"),
        ({"breaker": {"treshold": 3}}, "did you mean relay.polling.breaker.threshold?"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(polling: dict[str, Any], expected: str) -> None:
    assert expected in refused(relay={**POLLING, "polling": polling})


@pytest.mark.parametrize("lease", [{"name": "a b"}, {"owner": "o" * 201}, {"lifetime_ms": 1}])
def test_a_lease_that_no_store_could_hold_is_refused(lease: dict[str, Any]) -> None:
    assert f"relay.lease.{next(iter(lease))}" in refused(relay={"lease": lease})


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:13000", ("127.0.0.1", 13000)),
        ("13000", ("127.0.0.1", 13000)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),  # noqa: S104 - what somebody may write
        ("[::1]:80", ("::1", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_the_health_address_is_a_host_and_a_port(listen: str, address: tuple[str, int]) -> None:
    assert address_of(listen) == address
    assert Settings.load(health={"listen": listen}).health.address == address


@pytest.mark.parametrize("listen", ["here", ":", "host:", "host:70000", "a b:1", "::1:80"])
def test_another_health_address_is_refused(listen: str) -> None:
    assert "health.listen" in refused(health={"listen": listen})


def test_nobody_listens_unless_told_to() -> None:
    assert Settings.load().health.address is None


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    file = tmp_path / "login file.toml"
    file.write_text('user = "reader"\npassword = "geheim"\n', "utf-8")
    return file


def test_urls_name_the_credentials_file_and_not_what_is_in_it(credentials: Path) -> None:
    replica = "postgresql+psycopg://replica/db?sslmode=require"
    database = {"url": URL, "read_only_url": replica, "credentials_file": str(credentials)}
    found = Settings.load(relay=POLLING, database=database).database
    assert found.require_url().startswith(f"{URL}?inorder_credentials_file=/")
    assert found.reading_url().startswith(f"{replica}&inorder_credentials_file=/")
    assert "geheim" not in found.require_url() + found.reading_url()


def test_events_are_read_where_they_are_written_unless_a_replica_is_named() -> None:
    database = Settings.load(database={"url": URL}).database
    assert database.reading_url() == database.require_url() == URL


@pytest.mark.parametrize("content", ["", "user = 'x'", "{", '{"user": 1, "password": "p"}', "[]", "user = geheim"])
def test_a_credentials_file_without_user_and_password_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "login"
    file.write_text(content, "utf-8")
    message = refused(database={"url": URL, "credentials_file": str(file)})
    assert message.startswith("database.credentials_file = ")
    assert "geheim" not in message


def test_a_credentials_file_must_be_there() -> None:
    assert "cannot be read" in refused(database={"url": URL, "credentials_file": "nowhere.toml"})


@pytest.mark.parametrize("database", [{}, {"url": "sqlite:///outbox.db"}])
def test_a_credentials_file_is_for_a_server(credentials: Path, database: dict[str, str]) -> None:
    message = refused(database={**database, "credentials_file": str(credentials)})
    assert "database.credentials_file" in message
    assert "database.url" in message


def test_the_password_of_the_replica_is_masked_as_well() -> None:
    wrong = "postgres://reader:geheim@replica/db"
    assert "geheim" not in refused(database={"read_only_url": wrong})
    settings = Settings.load(relay=POLLING, database={"url": URL, "read_only_url": f"{URL}?password=geheim"})
    assert "geheim" not in str(settings.describe())
