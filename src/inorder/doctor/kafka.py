"""Kafka: reachable, sessions, the marker topic, the pipeline's topic, limits that must fit together."""

from __future__ import annotations

from collections.abc import Iterator

from inorder.doctor.check import Check, fail, of_error, ok, warn
from inorder.kafka import group_member
from inorder.kafka.admin import Cluster, ClusterInfo
from inorder.kafka.shard_log import DEFAULTS, marker_topic
from inorder.model.errors import InorderError
from inorder.settings import Settings

# A record is its value and some more: key, headers, framing.
FRAMING_BYTES = 1024


def examine_kafka(settings: Settings) -> list[Check]:
    """What the relay and the pipeline need from Kafka."""
    found: list[Check] = []
    try:
        cluster = Cluster(settings.kafka.properties)
        found.extend(_checks(cluster, settings))
    except InorderError as error:
        found.append(of_error("kafka", error))
    return found


def _checks(cluster: Cluster, settings: Settings) -> Iterator[Check]:
    info = cluster.info()
    yield ok("kafka", f"cluster {info.cluster_id}, {len(info.brokers)} broker(s): {', '.join(info.brokers)}")
    yield _transactions(cluster, info, {**DEFAULTS, **settings.kafka.properties}["transaction.timeout.ms"])
    if settings.relay.leadership == "kafka":
        session = {**group_member.DEFAULTS, **settings.kafka.properties}["session.timeout.ms"]
        yield _sessions(cluster, info, int(str(session)))
    yield _marker(cluster, marker_topic(settings.relay.group))
    for target in settings.pipeline.targets:
        yield from _topic(cluster, settings, target.topic)


def _transactions(cluster: Cluster, info: ClusterInfo, wanted: object) -> Check:
    name = "transaction.max.timeout.ms"
    longest = cluster.broker_settings(info.broker_ids[0]).get(name)
    if longest is None:
        return warn("kafka transactions", f"the broker does not tell {name}", "Nothing to do if the relay starts.")
    if int(longest) < int(str(wanted)):
        # The broker would refuse the relay's producer.
        hint = f'Set {name} of the brokers to {wanted} or more, or kafka."transaction.timeout.ms" lower.'
        return fail("kafka transactions", f"{name} = {longest}", hint)
    return ok("kafka transactions", f"{name} = {longest}")


def _sessions(cluster: Cluster, info: ClusterInfo, wanted: int) -> Check:
    """Whether the broker lets the members of the election have the session they ask for."""
    names = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    told = cluster.broker_settings(info.broker_ids[0])
    least, most = (told.get(name) for name in names)
    if least is None or most is None:
        return warn("leadership", f"the broker does not tell {' and '.join(names)}", "Nothing to do if a relay leads.")
    detail = f"sessions of {wanted} ms; the broker allows {least} to {most}"
    if int(least) <= wanted <= int(most):
        return ok("leadership", detail)
    return fail("leadership", detail, 'Set kafka."session.timeout.ms" between them, or use another relay.leadership.')


def _marker(cluster: Cluster, topic: str) -> Check:
    partitions = cluster.partitions(topic)
    if partitions is None:
        return ok("marker topic", f"{topic} is made at the first start of the relay")
    policy = cluster.topic_settings(topic).get("cleanup.policy", "")
    if policy != "compact":
        hint = f"Set cleanup.policy=compact on {topic}, or markers are deleted while they are needed."
        return fail("marker topic", f"{topic} has cleanup.policy={policy}", hint)
    return ok("marker topic", f"{topic}: {partitions} partition(s), compacted")


def _topic(cluster: Cluster, settings: Settings, topic: str) -> Iterator[Check]:
    partitions = cluster.partitions(topic)
    if partitions is None:
        hint = "Needed by the pipeline only: create it with the number of partitions you want."
        yield warn("pipeline topic", f"{topic} does not exist", hint)
        return
    yield ok("pipeline topic", f"{topic}: {partitions} partition(s)")
    yield _largest(topic, int(cluster.topic_settings(topic)["max.message.bytes"]), settings.outbox.max_value_bytes)


def _largest(topic: str, limit: int, value: int) -> Check:
    detail = f"max.message.bytes = {limit} on {topic}, outbox.max_value_bytes = {value}"
    if limit >= value + FRAMING_BYTES:
        return ok("message size", detail)
    hint = "Raise the topic's limit or lower outbox.max_value_bytes: the broker refuses what the outbox took."
    return warn("message size", detail, hint)
