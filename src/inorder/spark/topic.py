"""What the broker says about a topic, asked through the Kafka client that Spark's connector brings along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession

from inorder.model.errors import GuaranteeError, UnreachableError
from inorder.ports.table_store import Pointer

_EARLIEST = -2  # Spark's word for it in `startingOffsets`
_TIMEOUT_MS = "10000"


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that a partition holds: from `first` up to, not including, `end`."""

    first: int
    end: int


def topic_extents(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> dict[int, Extent] | None:
    """The partitions of a topic, or None while there is no such topic. Raises `UnreachableError`."""
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.Properties()
    for key, value in {"default.api.timeout.ms": _TIMEOUT_MS, "request.timeout.ms": "5000", **kafka}.items():
        settings.setProperty(key, value)
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        return _extents(jvm, admin, topic)
    except Py4JJavaError as error:
        if "UnknownTopicOrPartitionException" in _causes(error):
            return None
        raise UnreachableError(
            f"The broker at {kafka.get('bootstrap.servers')} does not answer: {_causes(error)}.",
            hint='Check that it runs and that kafka."bootstrap.servers" is right.',
        ) from error
    finally:
        if admin is not None:
            admin.close()


def starting_offsets(pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]) -> dict[str, int]:
    """Where each partition goes on: at its pointer, or at the earliest record if it has none."""
    return {str(number): pointers[number].next_offset if number in pointers else _EARLIEST for number in extents}


def check_reachable(topic: str, pointers: Mapping[int, Pointer], extents: Mapping[int, Extent]) -> None:
    """Refuses to start where the topic no longer holds the record that a pointer waits for."""
    for number, pointer in pointers.items():
        extent = extents.get(number)
        if extent is None:
            found = "does not exist"
        elif pointer.next_offset < extent.first:
            found = f"begins at {extent.first}: records were deleted before they were applied"
        elif pointer.next_offset > extent.end:
            found = f"ends at {extent.end}: it was deleted and made again, or truncated"
        else:
            continue
        raise GuaranteeError(
            f"The pointer of {topic}[{number}] is at {pointer.next_offset}, but the partition {found}.",
            hint="Restore the topic, or delete its inorder_pointer rows to accept the loss and start anew.",
        )


def _extents(jvm: Any, admin: Any, topic: str) -> dict[int, Extent]:
    names = jvm.java.util.ArrayList()
    names.add(topic)
    described = admin.describeTopics(names).allTopicNames().get().get(topic)
    places = {one.partition(): jvm.org.apache.kafka.common.TopicPartition(topic, one.partition())
              for one in described.partitions()}  # fmt: skip
    first = _offsets(jvm, admin, places, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
    end = _offsets(jvm, admin, places, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
    return {number: Extent(first[number], end[number]) for number in sorted(places)}


def _offsets(jvm: Any, admin: Any, places: Mapping[int, Any], spec: Any) -> dict[int, int]:
    asked = jvm.java.util.HashMap()
    for place in places.values():
        asked.put(place, spec)
    answered = admin.listOffsets(asked).all().get()
    return {number: answered.get(place).offset() for number, place in places.items()}


def _causes(error: Py4JJavaError) -> str:
    """The names of a Java exception and its causes; names are an interface, texts are not."""
    names: list[str] = []
    cause = error.java_exception
    while cause is not None and len(names) < 8:
        names.append(cause.getClass().getSimpleName())
        cause = cause.getCause()
    return " < ".join(names)
