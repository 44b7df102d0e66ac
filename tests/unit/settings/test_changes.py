"""Which changes a running relay goes on with, and which wait for a restart."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.settings import Settings
from inorder.settings.root import compare, find_conflicts, keep_fixed, leaves

POLLING: dict[str, Any] = {"strategy": "polling", "layout": "trendyol"}
URL = "postgresql+psycopg://a:one@host/db"


def loaded(**sections: Any) -> Settings:
    relay = {**POLLING, **sections.pop("relay", {})}
    return Settings.load(relay=relay, **sections)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"kafka": {"linger.ms": 5}}, 'kafka."linger.ms"'),
        ({"kafka": {"sasl.password": "x"}}, 'kafka."sasl.password"'),
        ({"relay": {"batch_size": 7}}, "relay.batch_size"),
        ({"relay": {"io_back_off_ms": 7}}, "relay.io_back_off_ms"),
        ({"relay": {"on_exceeded": "skip"}}, "relay.on_exceeded"),
        ({"relay": {"reload_on_change": False}}, "relay.reload_on_change"),
        ({"relay": {"polling": {"missing_wait_ms": 7}}}, "relay.polling.missing_wait_ms"),
        ({"relay": {"polling": {"is_publishing_on": False}}}, "relay.polling.is_publishing_on"),
        ({"relay": {"polling": {"breaker": {"threshold": 7}}}}, "relay.polling.breaker.threshold"),
    ],
)
def test_a_running_relay_goes_on_with_it(sections: dict[str, Any], key: str) -> None:
    found = compare(loaded(), new := loaded(**sections))
    assert found.for_the_relay == (key,)
    assert found.for_a_restart == ()
    assert found.of_kafka is key.startswith("kafka")
    assert dict(leaves(keep_fixed(loaded(), new))) == dict(leaves(new))


def test_a_topic_that_is_new_or_gone_counts() -> None:
    with_topic = loaded(topics={"orders": {"on_exceeded": "skip"}})
    assert "topics.orders.on_exceeded" in compare(loaded(), with_topic).for_the_relay
    assert "topics.orders.on_exceeded" in compare(with_topic, loaded()).for_the_relay


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"relay": {"group": "other"}}, "relay.group"),
        ({"relay": {"table": "other"}}, "relay.table"),
        ({"relay": {"delivery": "at-least-once"}}, "relay.delivery"),
        ({"relay": {"leadership": "none"}}, "relay.leadership"),
        ({"relay": {"lease": {"lifetime_ms": 9000}}}, "relay.lease.lifetime_ms"),
        ({"relay": {"stop_seconds": 3}}, "relay.stop_seconds"),
        ({"relay": {"polling": {"offset_table": "other"}}}, "relay.polling.offset_table"),
        ({"database": {"url": URL}}, "database.url"),
        ({"redis": {"url": "redis://host/1"}}, "redis.url"),
        ({"health": {"listen": "13000"}}, "health.listen"),
    ],
)
def test_it_counts_after_a_restart_only(sections: dict[str, Any], key: str) -> None:
    old, new = loaded(), loaded(**sections)
    assert compare(old, new).for_a_restart == (key,)
    assert compare(old, new).for_the_relay == ()
    assert dict(leaves(keep_fixed(old, new))) == dict(leaves(old))


def test_the_rest_of_a_change_is_gone_on_with() -> None:
    old, new = loaded(), loaded(relay={"group": "other", "batch_size": 7})
    mixed = keep_fixed(old, new).relay
    assert (mixed.group, mixed.batch_size) == (old.relay.group, 7)


def test_a_mixture_may_contradict_itself_and_that_is_told() -> None:
    old = Settings.load(relay={"strategy": "mark-purge"})
    new = Settings.load(relay={"strategy": "drain", "batch_size": 5000})
    assert "relay.in_flight_limit" in find_conflicts(keep_fixed(old, new))[0]
    assert find_conflicts(new) == []


@pytest.mark.parametrize("sections", [{}, {"log": {"level": "debug"}}, {"pipeline": {"upsert": {"topic": "x"}}}])
def test_what_is_not_the_relays_business_disturbs_it_not(sections: dict[str, Any]) -> None:
    found = compare(loaded(), loaded(**sections))
    assert (found.for_the_relay, found.for_a_restart) == ((), ())


def test_secrets_are_compared_and_never_told() -> None:
    old, new = loaded(database={"url": URL}), loaded(database={"url": URL.replace("one", "two")})
    assert compare(old, new).for_a_restart == ("database.url",)
    assert "two" not in str(compare(old, new))
