"""inorder.toml, INORDER_* variables and overrides, one model a section."""

from inorder.settings.database import DatabaseSettings
from inorder.settings.kafka import KafkaSettings
from inorder.settings.log import LogSettings
from inorder.settings.outbox import OutboxSettings
from inorder.settings.pipeline import PipelineSettings, UpsertSettings
from inorder.settings.publisher import PublisherSettings
from inorder.settings.redis import RedisSettings
from inorder.settings.relay import RelaySettings
from inorder.settings.root import Row, Settings
from inorder.settings.topics import TopicSettings
from inorder.settings.url import SecretUrl

__all__ = [
    "DatabaseSettings",
    "KafkaSettings",
    "LogSettings",
    "OutboxSettings",
    "PipelineSettings",
    "PublisherSettings",
    "RedisSettings",
    "RelaySettings",
    "Row",
    "SecretUrl",
    "Settings",
    "TopicSettings",
    "UpsertSettings",
]
