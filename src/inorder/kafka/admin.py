"""The admin client: looking at a cluster and its topics, creating topics, and committing offsets of a group."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Container, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AclOperation,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from inorder.kafka.errors import CLIENT_LOG, AuthWatch, error_of, meaning
from inorder.model.errors import ConfigurationError, InorderError, UnreachableError
from inorder.model.partitioning import Extent, Place

SECONDS = 5.0
LEADER_SECONDS = 5.0
"""How long a partition may be without a leader that knows of it."""
ASK_AGAIN_SECONDS = 0.05

# The broker refuses these whenever it is asked; every other error counts as an outage.
_REFUSALS = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers before Kafka 2.8 answer: all bytes are zero."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a cluster reports about itself; Kafka does not report its version."""

    cluster_id: str
    brokers: tuple[str, ...]
    broker_ids: tuple[int, ...]


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raises `ConfigurationError` for a property or value that librdkafka does not know; connects nowhere."""
    _client({**properties, "bootstrap.servers": ""})


class Cluster:
    """Read-only requests to a cluster; each is answered within seconds or raises `UnreachableError`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._servers = str(properties.get("bootstrap.servers", ""))
        self._auth = AuthWatch(self._servers)
        self._client = _client({**properties, "error_cb": self._auth.note})

    def info(self) -> ClusterInfo:
        """The id and the brokers of the cluster.

        By the metadata, not by DescribeCluster: librdkafka aborts the process where a broker that stops answers that
        with no broker at all, because the error is lost and the result missing.
        """
        found = self._metadata()
        if not found.brokers:
            raise _unreachable(self._servers, "no broker is registered")
        nodes = sorted(found.brokers.values(), key=lambda node: node.id)
        brokers = tuple(f"{node.host}:{node.port}" for node in nodes)
        name = cast("str | None", found.cluster_id)  # the stubs know only its value before the answer
        return ClusterInfo(name or "", brokers, tuple(node.id for node in nodes))

    def topic_names(self) -> list[str]:
        """The names of all topics except internal ones."""
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of every topic, by one request."""
        return {name: len(found.partitions) for name, found in self._metadata().topics.items()}

    def _metadata(self) -> ClusterMetadata:
        """On a thread, because the call blocks and would not notice that authentication failed."""
        found: Future[ClusterMetadata] = Future()

        def ask() -> None:
            try:
                found.set_result(self._client.list_topics(timeout=SECONDS))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                found.set_exception(error)

        threading.Thread(target=ask, name="inorder-kafka-metadata", daemon=True).start()
        return self._answer(found)

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic, or None where it does not exist; never creates it."""
        found = self._describe(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of a topic, as its tools print it; None where it does not exist, or the brokers have no ids."""
        found = self._describe(topic)
        id = None if found is None else str(found.topic_id)
        return None if id == _NO_ID else id

    def identify(self, topic: str) -> tuple[str | None, int] | None:
        """Kafka's id of a topic and the number of its partitions, both of one answer; None where it does not exist."""
        found = self._describe(topic)
        if found is None:
            return None
        id = str(found.topic_id)
        return None if id == _NO_ID else id, len(found.partitions)

    def _describe(self, topic: str) -> TopicDescription | None:
        future = self._client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        try:
            found: TopicDescription = self._answer(future)
        except _UnknownTopicError:
            return None
        return found

    def replicas(self, topic: str) -> int:
        """How many replicas the partition of a topic with the fewest of them has."""
        found = self._describe(topic)
        if found is None:
            raise ConfigurationError(f"The topic {topic!r} does not exist.")
        return min(len(partition.replicas) for partition in found.partitions)

    def extents(self, topic: str) -> dict[int, Extent] | None:
        """The committed offsets that each partition of a topic holds, or None where it does not exist."""
        partitions = self.partitions(topic)
        if partitions is None:
            return None
        first = self._offsets(topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client leaves it untyped
        end = self.committed_ends(topic, partitions)
        return {number: Extent(first[number], end[number]) for number in range(partitions)}

    def committed_ends(self, topic: str, partitions: int) -> dict[int, int]:
        """The last stable offset of each partition, up to which consumers of committed records read."""
        return self._offsets(topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # as above

    def written_ends(self, topic: str, partitions: int) -> dict[int, int]:
        """The high watermark of each partition, which includes records of open transactions."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]  # as above

    def is_writable(self, topic: str) -> bool:
        """Whether we may write to a topic; True where the cluster does not say."""
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
        deadline = time.monotonic() + LEADER_SECONDS
        while True:
            answers = self._client.list_offsets(asked, isolation_level=level, request_timeout=SECONDS)
            try:
                return {place.partition: self._answer(answer).offset for place, answer in answers.items()}
            except _UnknownTopicError as error:
                # It existed a moment ago: it is being deleted, or its broker has restarted and does not know it yet.
                reason = f"the end offsets of {topic!r} are not known: {error.message}"
                raise _unreachable(self._servers, reason) from error
            except UnreachableError as error:
                # A topic that was created a moment ago has its leader before that broker knows of it.
                if not _lacks_leader(error.__cause__) or time.monotonic() > deadline:
                    raise
            time.sleep(ASK_AGAIN_SECONDS)

    def _settings(self, resource: ConfigResource) -> dict[str, str]:
        answers = self._client.describe_configs([resource], request_timeout=SECONDS)
        return {name: entry.value for name, entry in self._answer(answers[resource]).items()}

    def _answer(self, future: Future[T]) -> T:
        self._auth.watch(self._client, future)
        try:
            # The request has its own timeout; the extra second is for the client's thread.
            return future.result(timeout=SECONDS + 1)
        except KafkaException as error:
            raise _classify(error, self._servers) from error
        except TimeoutError as error:
            raise _unreachable(self._servers, f"no answer within {SECONDS:g} s") from error


def require_uncompacted(topic: str, settings: Mapping[str, str]) -> None:
    """Refuses a topic whose records Kafka removes by key: all but the last record of each journal would be lost."""
    policy = settings.get("cleanup.policy", "")
    if "compact" in policy:
        raise ConfigurationError(
            f"Topic {topic!r} is compacted (cleanup.policy={policy}), which removes events of journals.",
            hint="Set cleanup.policy=delete on the topic. What was compacted already is lost.",
        )


class _UnknownTopicError(InorderError):
    pass


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


def _lacks_leader(error: BaseException | None) -> bool:
    lacking = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    return isinstance(error, KafkaException) and error_of(error).code() in lacking


def _classify(error: KafkaException, servers: str) -> InorderError:
    reason: KafkaError = error.args[0]
    if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return _UnknownTopicError(reason.str())
    if reason.code() in _REFUSALS:
        return ConfigurationError(
            f"Kafka at {servers} refused the request: {reason.str()}.",
            hint="Check [kafka] and the permissions of its user.",
        )
    timed_out = reason.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
    return _unreachable(servers, f"no answer within {SECONDS:g} s" if timed_out else reason.str())


def _unreachable(servers: str, detail: str) -> UnreachableError:
    return UnreachableError(
        f"Kafka at {servers} cannot be reached: {detail}.",
        hint='Start it, or correct kafka."bootstrap.servers"; `inorder up` starts one here.',
    )


def probe(servers: str, seconds: float) -> UnreachableError | None:
    """Why no broker of `bootstrap.servers` accepts a connection within `seconds`; None if one does.

    The client retries a refused connection until its request times out, so each request would take that long.
    """
    with ThreadPoolExecutor(max(1, len(servers.split(","))), thread_name_prefix="inorder-probe") as pool:
        asked = {pool.submit(_connect, each.strip(), seconds) for each in servers.split(",")}
        reasons = [reason for found in as_completed(asked) if (reason := found.result())]
    return None if len(reasons) < len(asked) else _unreachable(servers, "; ".join(reasons))


def _connect(server: str, seconds: float) -> str:
    """Why a server does not accept a connection; empty if it does."""
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except ValueError:
        return ""  # no port, so the client has the answer
    except OSError as error:
        return error.strerror.lower() if error.strerror else str(error) or "timed out"
    return ""


def commit_group_offsets(properties: Mapping[str, Any], group: str, offsets: Mapping[Place, int]) -> None:
    """Commits offsets of a group that has no members; raises `TransientError` where the broker refuses some of them."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)
    places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    asked = ConsumerGroupTopicPartitions(group, places)
    answers = client.alter_consumer_group_offsets([asked], request_timeout=SECONDS)
    doing = f"Committing offsets of group {group!r}"
    answered = _await(answers[group], doing, SECONDS, unless=())
    for place in answered.topic_partitions if answered is not None else ():
        if place.error is not None:
            raise meaning(place.error, f"{doing} in {place.topic}[{place.partition}]")


def forget_group(properties: Mapping[str, Any], group: str) -> None:
    """Deletes the committed offsets of a group that has no members; one that does not exist is no error."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)
    answers = client.delete_consumer_groups([group], request_timeout=SECONDS)
    _await(answers[group], f"Deleting group {group!r}", SECONDS, unless=(KafkaError.GROUP_ID_NOT_FOUND,))


# Creating topics. Each is looked up first: creating one needs the permission CREATE even where it exists, and adding
# partitions needs ALTER, which a relay need not have once an administrator has created its topics.

TIMEOUT_SECONDS = 15.0
BROKER_DEFAULT = -1
"""The replication factor that the broker uses by default."""


COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # Kafka never compacts the newest segment, and by default it is filled to 1 GiB or for a week.
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(3600 * 1000),
}


def let_broker_create(properties: Mapping[str, Any], topic: str) -> None:
    """Asks for a topic in a way that lets a broker with auto-creation create it; the answer does not matter."""
    with suppress(KafkaException):
        _client({**properties, "allow.auto.create.topics": True}).list_topics(topic, timeout=SECONDS)


def ensure_compacted_topic(properties: Mapping[str, Any], name: str, partitions: int) -> None:
    """Creates a compacted topic, or adds the missing partitions to an existing one.

    It gets the cluster's default replication factor and small segments.
    """
    ensure_topic(properties, name, partitions, COMPACTED)
    if partitions > 1:
        ensure_partitions(properties, name, partitions)


def ensure_topic(
    properties: Mapping[str, Any],
    name: str,
    partitions: int,
    config: Mapping[str, str] | None = None,
    *,
    replicas: int = BROKER_DEFAULT,
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Creates a topic unless it exists; an existing one is left as it is."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # a name keeps it alive until its answers came
    if _partitions(client, name, seconds) is not None:
        return
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    created = client.create_topics([topic], request_timeout=seconds)
    _await(created[name], f"Creating topic {name!r}", seconds, unless=(KafkaError.TOPIC_ALREADY_EXISTS,))


def ensure_partitions(
    properties: Mapping[str, Any], name: str, partitions: int, *, seconds: float = TIMEOUT_SECONDS
) -> None:
    """Adds partitions to a topic up to the given number; never removes one."""
    client = AdminClient(dict(properties), logger=CLIENT_LOG)
    if (_partitions(client, name, seconds) or 0) >= partitions:
        return
    grown = client.create_partitions([NewPartitions(name, partitions)], request_timeout=seconds)
    # The broker answers INVALID_PARTITIONS where there are as many or more.
    _await(grown[name], f"Adding partitions to {name!r}", seconds, unless=(KafkaError.INVALID_PARTITIONS,))


_NOT_SEEN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
"""There is no such topic, or we may not know. Whether we may create it is the broker's to say."""


def _partitions(client: AdminClient, name: str, seconds: float) -> int | None:
    """The number of partitions of a topic, or None where it is not seen."""
    future = client.describe_topics(TopicCollection([name]), request_timeout=seconds)[name]
    found = _await(future, f"Looking up topic {name!r}", seconds, unless=_NOT_SEEN)
    return None if found is None else len(found.partitions)


def _await(answer: Future[T], doing: str, seconds: float, *, unless: Container[int]) -> T | None:
    """The answer; None if it is one of the errors in `unless`."""
    try:
        # The request has its own timeout; the extra second is for the client's thread.
        return answer.result(seconds + 1)
    except TimeoutError as exception:
        raise UnreachableError(f"{doing}: no answer within {seconds:g} s.") from exception
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() not in unless:
            raise meaning(error, doing) from exception
    return None


def end_offset(client: AdminClient, place: TopicPartition, level: IsolationLevel) -> int:
    """The end of a partition: of all that was written, or up to the first open transaction."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client leaves it untyped
    future = client.list_offsets({place: latest}, isolation_level=level, request_timeout=SECONDS)[place]
    found = _await(future, f"Asking for the end of {place.topic}/{place.partition}", SECONDS, unless=())
    assert found is not None  # noqa: S101 - no error is excepted
    return int(found.offset)


OWNERS_SECONDS = 3.0


def group_members(properties: Mapping[str, Any], topic: str) -> list[tuple[str, list[int]]]:
    """The client id of each member of the consumer group with the name of the topic, and the partitions that it owns.

    Empty where the broker does not answer in time or refuses the request: this is for display only.
    """
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # a name keeps it alive until its answers came
    try:
        answers = client.describe_consumer_groups([topic], request_timeout=OWNERS_SECONDS)
        # The request has its own timeout; the extra second is for the client's thread.
        group = answers[topic].result(OWNERS_SECONDS + 1)
    except (KafkaException, TimeoutError):
        return []
    return [(member.client_id, _partitions_of(member, topic)) for member in group.members]


def _partitions_of(member: Any, topic: str) -> list[int]:
    assignment = member.assignment
    return [] if assignment is None else [each.partition for each in assignment.topic_partitions if each.topic == topic]
