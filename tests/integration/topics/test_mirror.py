"""The mirror is a copy that never goes back, whoever writes it, and costs nothing where nobody ever switched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from inorder.model.errors import FencedError
from inorder.topics.generations import Generation, Phase, Target, TopicState
from inorder.topics.stores.kafka_topics import KafkaTopicMirror, MirrorReader
from tests.fakes.log import MemoryGenerations

BEGUN = TopicState("orders", (Generation(0, "orders", 4),), Phase.PREPARING, Target("orders.g1", 8), epoch=1)
CLOSING = replace(BEGUN, phase=Phase.CLOSING, epoch=2)


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


@pytest.fixture
def reader(properties: dict[str, object], unique: str) -> Iterator[MirrorReader]:
    with closing(MirrorReader(properties, unique)) as found:
        yield found


def test_where_no_topic_was_ever_switched_there_is_nothing_to_read(reader: MirrorReader) -> None:
    assert list(reader.read_all()) == []
    assert list(reader.read_all()) == []


def test_what_is_written_is_read_at_the_next_question(
    properties: dict[str, object], unique: str, reader: MirrorReader
) -> None:
    authority = MemoryGenerations()
    with closing(KafkaTopicMirror(properties, unique)) as mirror:
        assert mirror.epoch("orders") == 0
        mirror.write(authority, "orders")
        assert mirror.epoch("orders") == 0, "the authority knows nothing either"
        for state in (BEGUN, CLOSING):
            authority.replace(state)
            mirror.write(authority, "orders")
            assert mirror.epoch("orders") == state.epoch
            assert list(reader.read_all()) == [state]
    reader.close()
    assert list(reader.read_all()) == [CLOSING], "a closed reader may be asked again"
    with closing(MirrorReader(properties, unique)) as new:
        assert list(new.read_all()) == [CLOSING]


def test_a_writer_that_slept_cannot_put_an_older_state_over_a_newer_one(
    properties: dict[str, object], unique: str, reader: MirrorReader
) -> None:
    newer = MemoryGenerations()
    newer.replace(BEGUN)
    newer.replace(CLOSING)

    class Sleepy(MemoryGenerations):
        """Somebody else writes while we think about what we have read."""

        def read(self, topic: str) -> TopicState | None:
            found = super().read(topic)
            KafkaTopicMirror(properties, unique).write(newer, topic)
            return found

    older = Sleepy()
    older.replace(BEGUN)
    with pytest.raises(FencedError):
        KafkaTopicMirror(properties, unique).write(older, "orders")
    assert list(reader.read_all()) == [CLOSING]
