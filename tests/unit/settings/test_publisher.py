"""[publisher] and what a topic says over it."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.settings.servers import KafkaSettings
from tests.unit.settings.conftest import Write


def refused(**overrides: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(**overrides)
    return caught.value.message


def test_one_line_chooses_the_backend(write: Write) -> None:
    assert Settings.load().publisher.backend == "db"
    write('[publisher]\nbackend = "kafka"\n[topics.orders]\nbackend = "db"\n')
    settings = Settings.load()
    assert settings.publisher.backend == "kafka"
    assert settings.topic("orders").backend == "db"
    assert settings.topic("others").backend is None


@pytest.mark.parametrize(
    ("value", "nearest"),
    [("kafka_asinc", "; the nearest is kafka_async"), ("kafak", "; the nearest is kafka"), ("x", "")],
)
def test_an_unknown_backend_is_refused_with_the_nearest(value: str, nearest: str) -> None:
    expected = f"is wrong: expected one of db, kafka, kafka_async, memory{nearest}."
    assert refused(publisher={"backend": value}) == f"publisher.backend = {value!r} in the overrides {expected}"
    found = refused(topics={"orders": {"backend": value}})
    assert found == f"topics.orders.backend = {value!r} in the overrides {expected}"


def test_a_variable_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_PUBLISHER__BACKEND", "memory")
    assert Settings.load().publisher.backend == "memory"


def test_properties_of_a_topic_are_read_quoted_nested_and_from_a_variable(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[topics.orders.kafka]\n"linger.ms" = 5\n[topics.users.kafka]\ncompression.type = "zstd"\n')
    monkeypatch.setenv("INORDER_TOPICS__BULK__KAFKA", '{"batch.size": 1000}')
    settings = Settings.load()
    assert settings.topic("orders").kafka.properties == {"linger.ms": 5}
    assert settings.topic("users").kafka.properties == {"compression.type": "zstd"}
    assert settings.topic("bulk").kafka.properties == {"batch.size": 1000}
    assert settings.topic("others").kafka.properties == {}
    assert settings.kafka.properties == KafkaSettings.defaults
    assert settings.producer_properties("orders") == {**KafkaSettings.defaults, "linger.ms": 5}
    assert settings.producer_properties("others") == settings.kafka.properties


def test_properties_of_a_topic_are_shown_with_secrets_masked(write: Write) -> None:
    write('[topics.orders.kafka]\n"linger.ms" = 5\n"sasl.password" = "hush"\n')
    rows = {row.key: row.value for row in Settings.load().describe()}
    assert rows['topics.orders.kafka."linger.ms"'] == 5
    assert rows['topics.orders.kafka."sasl.password"'] == "***"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"transactional.id": "x"}, 'topics.orders.kafka."transactional.id" in the overrides is set by inorder itself'),
        ({"acks": "1"}, "topics.orders.kafka.\"acks\" = '1' contradicts the order of each key"),
        (
            {"enable.idempotence": False},
            'topics.orders.kafka."enable.idempotence" = False contradicts the order of each key',
        ),
        ({"max.in.flight.requests.per.connection": 6}, "which allows at most 5"),
    ],
)
def test_properties_that_would_break_the_order_are_refused(properties: dict[str, object], expected: str) -> None:
    assert expected in refused(topics={"orders": {"kafka": properties}})


@pytest.mark.parametrize("field", ["timeout_seconds", "queue_messages", "queue_megabytes", "flush_seconds"])
def test_bounds_are_positive(field: str) -> None:
    assert refused(publisher={field: 0}) == f"publisher.{field} = 0 in the overrides is wrong: expected 1 or more."
