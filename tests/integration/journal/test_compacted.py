"""A topic that is compacted loses all but the last record of each journal: writer and replicator refuse it."""

from __future__ import annotations

from contextlib import closing

import pytest

from inorder.journal.action import Mark
from inorder.journal.codec import action_record
from inorder.journal.jobs import UncompactedTopics
from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.kafka.admin import Cluster, ensure_compacted_topic, ensure_topic
from inorder.model.errors import ConfigurationError
from inorder.model.journal import Key
from inorder.model.message import Limits
from tests.unit.journal.world import NOON

REFUSED = "is compacted .cleanup.policy=.*compact.*, which removes events of journals"


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_writer_refuses_a_compacted_topic(properties: dict[str, object], unique: str, policy: str) -> None:
    ensure_topic(properties, unique, 1, {"cleanup.policy": policy})
    mark = action_record(Key("a", unique), Mark("m"), NOON, Limits())
    with closing(KafkaJournalLog(properties)) as log, pytest.raises(ConfigurationError, match=REFUSED):
        log.send(mark).result(60)


def test_a_replicator_refuses_a_compacted_topic_and_leaves_one_out_that_comes_later(
    properties: dict[str, object], unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = f"{unique}-good", f"{unique}-bad"
    ensure_topic(properties, good, 1)
    names = [good]
    topics = UncompactedTopics(Cluster(properties), lambda: tuple(names))
    assert topics() == (good,)
    ensure_compacted_topic(properties, bad, 1)
    names.append(bad)
    assert topics() == topics() == (good,)
    assert [record.message for record in caplog.records if record.name == "inorder.pipeline"] == [
        "pipeline.topic_compacted"
    ]
    with pytest.raises(ConfigurationError, match=REFUSED):
        UncompactedTopics(Cluster(properties), lambda: tuple(names))()
