"""Questions to the cluster that change nothing: is it there, how are its topics set."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AclOperation,
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.door import Door
from inorder.model.errors import ConfigurationError, InorderError, UnreachableError
from inorder.ports.partition_reader import Extent

SECONDS = 5.0

# What the broker said no to, whoever asks again; all else is taken for an outage.
_REFUSALS = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a cluster tells about itself; it does not tell its version."""

    cluster_id: str
    brokers: tuple[str, ...]
    broker_ids: tuple[int, ...]


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raises `ConfigurationError` for a property or value that librdkafka does not know; connects nowhere."""
    _client({**properties, "bootstrap.servers": ""})


class Cluster:
    """A cluster that is asked; every answer comes within some seconds or is an `UnreachableError`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._servers = str(properties.get("bootstrap.servers", ""))
        self._door = Door(self._servers)
        self._client = _client({**properties, "error_cb": self._door.note})

    def info(self) -> ClusterInfo:
        """Who answers, if anyone does."""
        answer = self._answer(self._client.describe_cluster(request_timeout=SECONDS))
        nodes = sorted(answer.nodes, key=lambda node: node.id)
        brokers = tuple(f"{node.host}:{node.port}" for node in nodes)
        return ClusterInfo(answer.cluster_id or "", brokers, tuple(node.id for node in nodes))

    def topic_names(self) -> list[str]:
        """The names of all topics but the cluster's own."""
        try:
            found = self._client.list_topics(timeout=SECONDS).topics
        except KafkaException as exception:
            raise _classified(exception, self._servers) from exception
        return sorted(name for name in found if not name.startswith("__"))

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, or None where it does not exist; asking never makes it."""
        future = self._client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        try:
            return len(self._answer(future).partitions)
        except _UnknownTopicError:
            return None

    def extents(self, topic: str) -> dict[int, Extent] | None:
        """What each partition of a topic holds for a reader of committed records, or None where it does not exist."""
        partitions = self.partitions(topic)
        if partitions is None:
            return None
        first = self._offsets(topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client leaves it untyped
        end = self.committed_ends(topic, partitions)
        return {number: Extent(first[number], end[number]) for number in range(partitions)}

    def committed_ends(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset up to which each partition is read by those who want committed records only."""
        return self._offsets(topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # as above

    def written_ends(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset behind each partition's last record, be it of a transaction that is still open."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]  # as above

    def is_writable(self, topic: str) -> bool:
        """Whether we may write to a topic; where the cluster does not tell, it is taken for granted."""
        asked = TopicCollection([topic])
        future = self._client.describe_topics(asked, include_authorized_operations=True, request_timeout=SECONDS)[topic]
        operations = self._answer(future).authorized_operations
        return not operations or AclOperation.WRITE in operations

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings a topic runs with."""
        return self._settings(ConfigResource(ResourceType.TOPIC, topic))

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """The settings a broker runs with."""
        return self._settings(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def _offsets(
        self, topic: str, partitions: int, spec: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        asked = {TopicPartition(topic, number): spec for number in range(partitions)}
        answers = self._client.list_offsets(asked, isolation_level=level, request_timeout=SECONDS)
        try:
            return {place.partition: self._answer(answer).offset for place, answer in answers.items()}
        except _UnknownTopicError as error:
            # It was there a moment ago: it is being deleted, or its broker has just come back and does not know it yet.
            raise _silent(self._servers, f"the ends of {topic!r} are not known: {error.message}") from error

    def _settings(self, resource: ConfigResource) -> dict[str, str]:
        answers = self._client.describe_configs([resource], request_timeout=SECONDS)
        return {name: entry.value for name, entry in self._answer(answers[resource]).items()}

    def _answer(self, future: Future[T]) -> T:
        self._door.watch(self._client, future)
        try:
            # The request ends by itself; the second on top is for the client's own thread.
            return future.result(timeout=SECONDS + 1)
        except KafkaException as error:
            raise _classified(error, self._servers) from error
        except TimeoutError as error:
            raise _silent(self._servers, f"no answer within {SECONDS:g} s") from error


class _UnknownTopicError(InorderError):
    """The topic does not exist."""


def _client(properties: Mapping[str, Any]) -> AdminClient:
    try:
        return AdminClient({**properties}, logger=CLIENT_LOG)
    except KafkaException as error:
        raise _misconfigured(error.args[0].str()) from error
    except (TypeError, ValueError) as error:
        raise _misconfigured(str(error)) from error


def _misconfigured(detail: str) -> ConfigurationError:
    return ConfigurationError(
        f"The Kafka client refuses [kafka]: {detail}.",
        hint="Look the property up in librdkafka's CONFIGURATION.md.",
    )


def _classified(error: KafkaException, servers: str) -> InorderError:
    reason: KafkaError = error.args[0]
    if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return _UnknownTopicError(reason.str())
    if reason.code() in _REFUSALS:
        return ConfigurationError(
            f"Kafka at {servers} refused us: {reason.str()}.",
            hint="Check [kafka] and the rights of its user.",
        )
    timed_out = reason.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
    return _silent(servers, f"no answer within {SECONDS:g} s" if timed_out else reason.str())


def _silent(servers: str, detail: str) -> UnreachableError:
    return UnreachableError(
        f"Kafka at {servers} cannot be reached: {detail}.",
        hint='Start it, or correct kafka."bootstrap.servers"; `inorder up` starts one here.',
    )
