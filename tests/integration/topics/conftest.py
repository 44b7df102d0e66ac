"""A topic of the test's own, with settings for everything that touches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import inorder
from inorder.kafka.admin import ensure_topic

SettingsOf = Callable[..., inorder.Settings]


@pytest.fixture
def settings_of(postgres_url: str, kafka_bootstrap: str, unique: str) -> SettingsOf:
    """Settings on the session's servers; keywords are sections."""

    def load(**sections: Any) -> inorder.Settings:
        relay = {"group": unique, "leadership": "database", **sections.pop("relay", {})}
        return inorder.Settings.load(
            kafka={"bootstrap.servers": kafka_bootstrap}, database={"url": postgres_url}, relay=relay, **sections
        )

    return load


@pytest.fixture
def topic(settings_of: SettingsOf, unique: str) -> str:
    """A topic with 4 partitions and a setting of its own."""
    ensure_topic(settings_of().kafka.properties, unique, 4, {"retention.ms": "86400000"})
    return unique
