"""A copier that another one has fenced says so, also where the client names no reason."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from inorder.kafka.fenced_producer import ClientBackoff, FencedProducer, Timeouts
from inorder.model.errors import FencedError
from inorder.model.partitioning import Partitioner
from inorder.topics.stores.kafka_copy import PartitionCopier
from tests.fakes.table_store import slice_of


@dataclass
class LostClient:
    """A client that was fenced between two records: only calls about the transaction still give the reason."""

    reason: KafkaError

    def begin_transaction(self) -> None: ...

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message"))

    def abort_transaction(self, _seconds: float) -> None:
        raise KafkaException(self.reason)


def test_a_copier_that_is_fenced_between_two_records_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Any, *_: object, **__: object) -> None:
        self.refused, self.is_spent, self._undelivered, self._id = [], False, [], "id"
        self._timeouts, self._backoff = Timeouts(), ClientBackoff.of({})
        self.client = LostClient(KafkaError(KafkaError._FENCED, "another one", fatal=True))

    monkeypatch.setattr(FencedProducer, "__init__", nothing)
    copier = PartitionCopier.__new__(PartitionCopier)
    copier._producer = FencedProducer({}, "id")
    copier._destination, copier._partitions, copier._partitioner = "copy", 1, Partitioner.MURMUR2
    copier._compared_at = time.monotonic()
    batch = replace(slice_of((0, b"{}")), headers=((),))
    with pytest.raises(FencedError, match="one is enough"):
        copier.copy(batch, 0)
