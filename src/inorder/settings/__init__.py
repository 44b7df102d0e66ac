"""inorder.toml, INORDER_* variables and overrides: one model per section."""

from inorder.settings.journal import JournalSettings
from inorder.settings.outbox import OutboxSettings, PublisherSettings, TopicSettings
from inorder.settings.pipeline import PipelineSettings, UpsertSettings
from inorder.settings.relay import BreakerSettings, LeaseSettings, PollingSettings, RelaySettings
from inorder.settings.root import Row, Settings
from inorder.settings.section import SecretUrl
from inorder.settings.servers import DatabaseSettings, HealthSettings, KafkaSettings, LogSettings, RedisSettings

__all__ = [
    "BreakerSettings",
    "DatabaseSettings",
    "HealthSettings",
    "JournalSettings",
    "KafkaSettings",
    "LeaseSettings",
    "LogSettings",
    "OutboxSettings",
    "PipelineSettings",
    "PollingSettings",
    "PublisherSettings",
    "RedisSettings",
    "RelaySettings",
    "Row",
    "SecretUrl",
    "Settings",
    "TopicSettings",
    "UpsertSettings",
]
