"""Who owns the partitions of a topic by which a group elects, as the broker tells anybody who asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from inorder.kafka.client_log import CLIENT_LOG

SECONDS = 3.0


def partition_owners(properties: Mapping[str, Any], topic: str) -> dict[int, str]:
    """The client id of the member that owns each partition, in the group that is named like the topic.

    Empty where the broker gives no answer in time, or does not let us ask: nobody needs to know it.
    """
    client = AdminClient(dict(properties), logger=CLIENT_LOG)  # kept by name: its answers die with it
    try:
        answers = client.describe_consumer_groups([topic], request_timeout=SECONDS)
        # The request ends by itself; the second on top is for the client's own thread.
        group = answers[topic].result(SECONDS + 1)
    except (KafkaException, TimeoutError):
        return {}
    return {
        place.partition: member.client_id
        for member in group.members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
        if place.topic == topic
    }
