"""What a switch of generations, and `inorder topics apply`, ask of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Message, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from inorder.kafka.admin import SECONDS, Cluster
from inorder.kafka.committed import committed_consumer
from inorder.kafka.copy_lane import ORIGIN
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.last_record import read_last_record
from inorder.kafka.topics import BROKERS_CHOICE, ensure_topic
from inorder.ports.topic_generations import Target


class KafkaTopicCluster(Cluster):
    """The topics of a cluster, as a `TopicCluster`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._properties = dict(properties)

    def is_empty(self, topic: str) -> bool:
        """Whether no partition ever got anything."""
        partitions = self.partitions(topic) or 0
        return not any(self.written_ends(topic, partitions).values())

    def make(self, target: Target, like: str) -> None:
        """Makes a topic with the settings that somebody gave another one, and as many replicas."""
        self.make_topic(target, self.given_settings(like), self.replicas(like))

    def make_topic(self, target: Target, config: Mapping[str, str], replicas: int | None) -> None:
        """Makes a topic unless it is there."""
        ensure_topic(self._properties, target.topic, target.partitions, config, replicas=replicas or BROKERS_CHOICE)

    def ends(self, topic: str, partitions: int) -> tuple[int, ...] | None:
        """The offset behind each partition's last committed record; None while a transaction is open."""
        written = self.written_ends(topic, partitions)
        # What is behind the last stable offset belongs to a transaction that is open, or follows one.
        if written != self.committed_ends(topic, partitions):
            return None
        return tuple(map(_end, self._last_records(topic, partitions)))

    def late(self, topic: str, ends: Sequence[int]) -> int:
        """How many offsets stand behind the ends, but for partitions that end with a copy (`kafka/copying.py`)."""
        found = self._last_records(topic, len(ends))
        behind = [max(0, _end(last) - end) for last, end in zip(found, ends, strict=True)]
        return sum(0 if _is_copy(last) else count for last, count in zip(found, behind, strict=True))

    def _last_records(self, topic: str, partitions: int) -> list[Message | None]:
        consumer = committed_consumer(self._properties, "inorder.topics.ends")
        try:
            return [read_last_record(consumer, topic, partition) for partition in range(partitions)]
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Looking for the ends of {topic!r}") from exception
        finally:
            consumer.close()

    def replicas(self, topic: str) -> int:
        """How many replicas the topic's first partition has."""
        future = self._client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        return len(self._answer(future).partitions[0].replicas)

    def given_settings(self, topic: str) -> dict[str, str]:
        """The settings that somebody gave the topic, without what the broker does by itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._client.describe_configs([resource], request_timeout=SECONDS)
        found = self._answer(answers[resource])
        given = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == given}

    def change_settings(self, topic: str, config: Mapping[str, str]) -> None:
        """Sets some of the topic's settings; the others stay."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        answers = self._client.incremental_alter_configs([resource], request_timeout=SECONDS)
        self._answer(answers[resource])


def _end(last: Message | None) -> int:
    return 0 if last is None else (last.offset() or 0) + 1


def _is_copy(message: Message | None) -> bool:
    return message is not None and ORIGIN in dict(message.headers() or ())
