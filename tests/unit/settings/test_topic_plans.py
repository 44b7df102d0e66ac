"""[topics.NAME] says how a topic should be on the broker."""

from __future__ import annotations

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings


def test_a_topic_says_partitions_replicas_and_its_settings() -> None:
    config = {"retention.ms": 60_000, "cleanup.policy": "compact", "preallocate": True}
    topic = Settings.load(topics={"orders": {"partitions": 8, "replication": 3, "config": config}}).topic("orders")
    assert (topic.partitions, topic.replication, topic.config) == (8, 3, config)


def test_a_topic_that_says_nothing_may_be_as_it_is() -> None:
    topic = Settings.load(topics={"orders": {}}).topic("orders")
    assert (topic.partitions, topic.replication, topic.config) == (None, None, {})


@pytest.mark.parametrize("field", ["partitions", "replication"])
@pytest.mark.parametrize("value", [0, -1, True, 2.5, "many"])
def test_a_number_that_is_none_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"topics\.orders\.{field}"):
        Settings.load(topics={"orders": {field: value}})
