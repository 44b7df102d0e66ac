"""Questions to the cluster that change nothing: is it there, how are its topics set."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from inorder.kafka.errors import CLIENT_LOG, Door, error_of, meaning
from inorder.model.errors import ConfigurationError, InorderError, UnreachableError

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


# Making topics.

TIMEOUT_SECONDS = 15.0
BROKERS_CHOICE = -1
"""As many replicas as the broker gives a topic by itself."""


def ensure_compacted_topic(properties: Mapping[str, Any], name: str, partitions: int) -> None:
    """Makes a topic whose last record per key is kept for ever; one that is there gets the partitions that it lacks."""
    ensure_topic(properties, name, partitions, {"cleanup.policy": "compact"})
    # Asked first, since growing needs a right that nothing else of ours does.
    if partitions > 1 and (Cluster(properties).partitions(name) or partitions) < partitions:
        ensure_partitions(properties, name, partitions)


def ensure_topic(
    properties: Mapping[str, Any],
    name: str,
    partitions: int,
    config: Mapping[str, str] | None = None,
    *,
    replicas: int = BROKERS_CHOICE,
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Makes a topic unless it is there; one that is there is left as it is."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # kept by name: its answers die with it
    created = client.create_topics([topic], request_timeout=seconds)
    _await(created[name], f"Making the topic {name!r}", seconds, unless=KafkaError.TOPIC_ALREADY_EXISTS)


def ensure_partitions(
    properties: Mapping[str, Any], name: str, partitions: int, *, seconds: float = TIMEOUT_SECONDS
) -> None:
    """Gives a topic more partitions, unless it has so many; none is ever taken away."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)
    grown = client.create_partitions([NewPartitions(name, partitions)], request_timeout=seconds)
    # What the broker answers where there are as many, or more.
    _await(grown[name], f"Giving {name!r} {partitions} partitions", seconds, unless=KafkaError.INVALID_PARTITIONS)


def _await(answer: Future[None], doing: str, seconds: float, *, unless: int) -> None:
    try:
        # The request ends by itself; the second on top is for the client's own thread.
        answer.result(seconds + 1)
    except TimeoutError as exception:
        raise UnreachableError(f"{doing}: no answer within {seconds:g} s.") from exception
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() != unless:
            raise meaning(error, doing) from exception


# Who owns the partitions of a topic by which a group elects, as the broker tells anybody who asks.

OWNERS_SECONDS = 3.0


def partition_owners(properties: Mapping[str, Any], topic: str) -> dict[int, str]:
    """The client id of the member that owns each partition, in the group that is named like the topic.

    Empty where the broker gives no answer in time, or does not let us ask: nobody needs to know it.
    """
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # kept by name: its answers die with it
    try:
        answers = client.describe_consumer_groups([topic], request_timeout=OWNERS_SECONDS)
        # The request ends by itself; the second on top is for the client's own thread.
        group = answers[topic].result(OWNERS_SECONDS + 1)
    except (KafkaException, TimeoutError):
        return {}
    return {
        place.partition: member.client_id
        for member in group.members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
        if place.topic == topic
    }


# Split from inorder.engines.slice_work.

Place: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a partition holds: from `first` up to, not including, `end`; open transactions are beyond it."""

    first: int
    end: int
