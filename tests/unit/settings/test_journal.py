"""Waiting for the store needs a topic of its own, and leaves time for Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings


@pytest.mark.parametrize(
    ("journal", "first", "second"),
    [
        ({"replicated_topic": "journal.replicated"}, "journal.replicated_topic", "journal.topic_prefixes"),
        ({"topic_prefixes": ["orders", "inorder"]}, "journal.replicated_topic", "journal.topic_prefixes"),
        ({"replicated_topic": "", "wait_for_store_ms": 1}, "journal.wait_for_store_ms", "journal.replicated_topic"),
        ({"timeout_seconds": 2, "wait_for_store_ms": 2000}, "journal.wait_for_store_ms", "journal.timeout_seconds"),
    ],
)
def test_what_cannot_both_hold_is_refused_naming_both_keys(journal: dict[str, Any], first: str, second: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(None, journal=journal)
    assert first in refused.value.message
    assert second in refused.value.message


@pytest.mark.parametrize(
    "journal",
    [
        {},
        {"replicated_topic": ""},
        {"replicated_topic": "replicated", "wait_for_store_ms": 500},
        {"timeout_seconds": 2, "wait_for_store_ms": 1999},
    ],
)
def test_all_else_is_taken(journal: dict[str, Any]) -> None:
    Settings.load(None, journal=journal)


@pytest.mark.parametrize("name", [".", "..", "with space", "a" * 250])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"journal\.replicated_topic"):
        Settings.load(None, journal={"replicated_topic": name})
