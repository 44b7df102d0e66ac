"""What an operator does, one call each on connections of its own: `inorder.app.App` for tests that ask one thing."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient

from inorder.app import App
from inorder.journal.service import Lag
from inorder.kafka.admin import Cluster, ensure_topic
from inorder.operate.key_trace import KeyTrace
from inorder.pipeline.dead_letters import RetryResult
from inorder.pipeline.stores.ports import StoredLetter
from inorder.relay.parts import RelayParts
from inorder.relay.status import open_admin
from inorder.relay.stores.exceeded import Action, ExceededRow
from inorder.relay.stores.ports import Registration, TopicBacklog
from inorder.settings import Settings
from inorder.topics.generations import TopicState
from tests.conftest import Eventually


def install_schema(settings: Settings, layout: str) -> None:
    with App(settings) as app:
        app.install_schema(layout)


def relay_status(settings: Settings) -> dict[str, Any]:
    with App(settings) as app:
        return app.relay_admin.status()


def outbox_numbers(settings: Settings) -> dict[str, float]:
    with open_admin(RelayParts(settings)) as admin:
        return dict(admin.outbox_reading().numbers)


def exceeded_rows(settings: Settings, **wanted: Any) -> list[ExceededRow]:
    with App(settings) as app:
        return app.relay_admin.exceeded_rows(**wanted)


def settle_exceeded(settings: Settings, action: Action, reason: str, **wanted: Any) -> list[ExceededRow]:
    with App(settings) as app:
        return app.relay_admin.settle_exceeded(action, reason, **wanted)


def topic_states(settings: Settings) -> list[TopicBacklog]:
    with App(settings) as app:
        return app.relay_admin.topic_states()


def reshard(settings: Settings, *, restored: bool = False) -> Registration:
    with App(settings) as app:
        return app.reshard(restored=restored)


def pipeline_status(settings: Settings) -> dict[str, Any]:
    with App(settings) as app:
        return app.pipeline_status()


def list_dead_letters(settings: Settings, limit: int, **wanted: Any) -> list[StoredLetter]:
    with App(settings) as app:
        return app.dead_letters.read(limit, **wanted)


def discard_dead_letters(settings: Settings, reason: str, **wanted: Any) -> int:
    with App(settings) as app:
        return app.dead_letters.discard(reason, **wanted)


def retry_dead_letters(settings: Settings, reason: str, **wanted: Any) -> list[RetryResult]:
    with App(settings) as app:
        return list(app.dead_letters.retry(reason, **wanted))


def journal_lag(settings: Settings) -> list[Lag]:
    with App(settings) as app:
        return app.journal_admin.lag()


def fail_over(settings: Settings, topic: str, **wanted: Any) -> TopicState:
    with App(settings) as app:
        return app.topics.fail_over(topic, **wanted)


def generations_status(settings: Settings, topic: str | None = None) -> list[dict[str, Any]]:
    with App(settings) as app:
        return app.topics.status(topic)


def migrate_topic(settings: Settings, topic: str, **wanted: Any) -> dict[str, int]:
    with App(settings) as app:
        return app.migrate_topic(topic, **wanted)


def trace_key(settings: Settings, key: str, **wanted: Any) -> KeyTrace:
    with App(settings) as app:
        return app.trace_key(key, **wanted)


def recreate(properties: dict[str, Any], topic: str, partitions: int, eventually: Eventually) -> None:
    """Deletes a topic and creates another one of that name; returns when the broker knows it."""
    admin, cluster = AdminClient(properties), Cluster(properties)
    before = cluster.topic_id(topic)
    for future in admin.delete_topics([topic]).values():
        future.result(timeout=30)

    def is_another() -> bool:
        # The controller knows it before the broker does, which would still take records for the former one.
        ensure_topic(properties, topic, partitions)
        return cluster.topic_id(topic) not in (None, before)

    eventually(is_another)
