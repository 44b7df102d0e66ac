"""inorder.toml, INORDER_* variables and overrides, one model a section."""

from inorder.settings.database import DatabaseSettings
from inorder.settings.health import HealthSettings
from inorder.settings.journal import JournalSettings
from inorder.settings.kafka import KafkaSettings
from inorder.settings.lease import LeaseSettings
from inorder.settings.log import LogSettings
from inorder.settings.outbox import OutboxSettings
from inorder.settings.pipeline import PipelineSettings, UpsertSettings
from inorder.settings.polling import BreakerSettings, PollingSettings
from inorder.settings.publisher import PublisherSettings
from inorder.settings.redis import RedisSettings
from inorder.settings.relay import RelaySettings
from inorder.settings.root import Row, Settings
from inorder.settings.topics import TopicSettings
from inorder.settings.url import SecretUrl

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
