"""Settings that cannot both hold are refused, and the refusal names both keys."""

from __future__ import annotations

from typing import Any, get_args

import pydantic
import pytest

from inorder.model.errors import ConfigurationError
from inorder.pipeline.mapping import DELETES, FIELD_TYPES, KEY_TYPES, MODES, NULLS
from inorder.settings import Settings
from inorder.settings.pipeline import Deletes, FieldType, KeyType, Mode, Nulls
from inorder.settings.servers import KafkaSettings


@pytest.mark.parametrize(
    ("overrides", "first", "second"),
    [
        ({"kafka": {"enable.idempotence": False}}, 'kafka."enable.idempotence"', "relay.delivery"),
        (
            {"pipeline": {"engine": "resident", "upsert": {"target": "delta:/lake/a"}}},
            "pipeline.upsert.target = 'delta:/lake/a'",
            "pipeline.engine = 'micro-batch'",
        ),
        (
            {
                "pipeline": {
                    "tables": [{"topic": "a", "table": "a", "target": "delta:/a"}, {"topic": "b", "table": "b"}]
                }
            },
            "pipeline.tables.0.target",
            "database.url",
        ),
        (
            {
                "pipeline": {
                    "tables": [
                        {"topic": "a", "table": "a", "target": "delta:/a"},
                        {"topic": "b", "table": "b", "target": "delta:/a"},
                    ]
                }
            },
            "pipeline.tables",
            "target 'delta:/a' 2 times",
        ),
        (
            {"pipeline": {"upsert": {"target": "delta:/a", "fields": {"version_deleted": "boolean"}}}},
            "pipeline.upsert",
            "version_deleted",
        ),
        ({"kafka": {"enable.idempotence": "false"}}, 'kafka."enable.idempotence"', "relay.delivery"),
        ({"kafka": {"acks": 1}}, 'kafka."acks"', "relay.delivery"),
        ({"kafka": {"acks": "0"}}, 'kafka."acks"', "relay.delivery"),
        ({"kafka": {"request.required.acks": 1}}, 'kafka."request.required.acks"', "relay.delivery"),
        (
            {"kafka": {"acks": 1}, "relay": {"delivery": "at-least-once"}},
            'kafka."acks"',
            "relay.delivery = 'at-least-once'",
        ),
        (
            {"kafka": {"max.in.flight.requests.per.connection": 6}},
            'kafka."max.in.flight.requests.per.connection"',
            "relay.delivery",
        ),
        (
            {"kafka": {"enable.idempotence": False}, "relay": {"delivery": "at-least-once"}},
            'kafka."enable.idempotence"',
            "relay.delivery = 'at-least-once'",
        ),
        (
            {"kafka": {"message.timeout.ms": 1000}, "relay": {"delivery": "at-least-once"}},
            'kafka."message.timeout.ms"',
            "relay.delivery",
        ),
        (
            {"kafka": {"enable.gapless.guarantee": False}, "relay": {"delivery": "at-least-once"}},
            'kafka."enable.gapless.guarantee"',
            "relay.delivery",
        ),
        ({"kafka": {"retries": 3}, "relay": {"delivery": "at-least-once"}}, 'kafka."retries"', "relay.delivery"),
        ({"kafka": {"message.max.bytes": 1000}}, 'kafka."message.max.bytes"', "outbox.max_value_bytes"),
        ({"relay": {"strategy": "topic-lock"}}, "relay.strategy", "relay.layout = 'native'"),
        ({"relay": {"layout": "deimos"}}, "relay.layout", "relay.strategy = 'drain'"),
        (
            {"relay": {"layout": "deimos", "strategy": "topic-lock", "delivery": "exactly-once"}},
            "relay.delivery = 'exactly-once'",
            "relay.strategy",
        ),
        (
            {"relay": {"layout": "deimos", "strategy": "topic-lock", "shards": 2}},
            "relay.shards = 2",
            "relay.topic_lock.workers",
        ),
        (
            {"relay": {"layout": "deimos", "strategy": "topic-lock"}, "kafka": {"retries": 3}},
            'kafka."retries"',
            "relay.delivery",
        ),
        ({"relay": {"leadership": "redis"}}, "relay.leadership", "redis.url"),
        ({"pipeline": {"upsert": {"key": "data"}}}, "pipeline.upsert.key", "pipeline.upsert.fields"),
        ({"pipeline": {"upsert": {"table": "outbox"}}}, "pipeline.upsert.table", "relay.table"),
        (
            {"pipeline": {"upsert": {"fields": {"version_offset": "bigint"}}}},
            "pipeline.upsert.fields",
            "pipeline.upsert.table",
        ),
        ({"pipeline": {"upsert": {"key": "updated_at"}}}, "pipeline.upsert.key", "pipeline.upsert.table"),
    ],
)
def test_a_contradiction_names_both_keys(overrides: dict[str, Any], first: str, second: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(**overrides)
    assert first in caught.value.message
    assert second in caught.value.message


@pytest.mark.parametrize(
    "kafka",
    [
        {"enable.idempotence": True},
        {"enable.idempotence": "true"},
        {"acks": "all"},
        {"acks": -1},
        {"compression.type": "zstd", "linger.ms": 20, "client.id": "us", "socket.keepalive.enable": True},
        {"max.in.flight.requests.per.connection": 5},
        {"message.max.bytes": 2_000_000},
    ],
)
def test_what_agrees_is_taken(kafka: dict[str, Any]) -> None:
    assert Settings.load(kafka=kafka).kafka.properties == {**KafkaSettings.defaults, **kafka}


@pytest.mark.parametrize("leadership", ["kafka", "database", "redis", "none"])
def test_every_leadership_is_taken_where_redis_has_a_url(leadership: str) -> None:
    settings = Settings.load(relay={"leadership": leadership}, redis={"url": "redis://127.0.0.1:6379/0"})
    assert settings.relay.leadership == leadership


def test_a_contradiction_is_also_refused_without_load() -> None:
    with pytest.raises(pydantic.ValidationError):
        Settings.model_validate({"pipeline": {"upsert": {"key": "data"}}})


def test_the_types_are_those_of_the_pipeline() -> None:
    assert get_args(FieldType) == tuple(FIELD_TYPES)
    assert get_args(KeyType) == KEY_TYPES
    assert (get_args(Mode), get_args(Deletes), get_args(Nulls)) == (MODES, DELETES, NULLS)


def test_defaults_of_the_strategy_topic_lock_follow_from_it() -> None:
    relay = Settings.load(relay={"layout": "deimos", "strategy": "topic-lock"}).relay
    assert (relay.table, relay.delivery, relay.batch_size) == ("kafka_messages", "at-least-once", 1000)
    assert Settings.load(relay={"layout": "deimos", "strategy": "topic-lock", "table": "box"}).relay.table == "box"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", "all"), ("a", ["a"]), ("a, b", ["a", "b"]), (["a", "b"], ["a", "b"]), ("", []), ([], [])],
)
def test_topics_are_a_list_or_text_as_a_variable_has_it(given: object, expected: object) -> None:
    settings = Settings.load(relay={"topic_lock": {"compact_topics": given}})
    assert settings.relay.topic_lock.compact_topics == expected
