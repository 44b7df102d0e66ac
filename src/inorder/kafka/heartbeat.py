"""Heartbeats of the election: records by which the owner of a partition shows itself that it is connected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite

from confluent_kafka import Producer

from inorder.kafka.client_log import CLIENT_LOG


class Heartbeat:
    """Sends heartbeats of one owner: its name, and when its own clock said that they were sent."""

    def __init__(self, properties: Mapping[str, object], topic: str, owner: str, *, timeout: float) -> None:
        # One that is late proves nothing, so it need not be sent any more.
        ours = {"linger.ms": 0, "message.timeout.ms": int(timeout * 1000)}
        self._producer = Producer({**properties, **ours}, logger=CLIENT_LOG)
        self._topic = topic
        self._owner = owner
        self._sent: dict[int, float] = {}

    def send_if_due(self, partition: int, now: float, interval: float) -> None:
        """Sends one to the partition if its last is `interval` seconds ago; waits for nothing."""
        self._producer.poll(0)
        if now - self._sent.get(partition, float("-inf")) >= interval:
            self._sent[partition] = now
            value = json.dumps({"name": self._owner, "sent": now})
            self._producer.produce(self._topic, value=value, partition=partition)


def sent_by(owner: str, value: bytes | None) -> float | None:
    """When `owner` sent this heartbeat, by its own clock; None for whatever else lies on the topic."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("name") != owner:
        return None
    sent = found.get("sent")
    # Not NaN, which compares with nothing and so would never grow old.
    return sent if type(sent) is float and isfinite(sent) else None
