"""[topics.NAME]: what inorder must know of one topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from inorder.outbox.publisher import BackendName
from inorder.settings.kafka import KafkaSettings, Property
from inorder.settings.section import OnExceeded, Section, Whole

Partitioner = Literal["murmur2", "id-modulo"]


class TopicKafkaSettings(KafkaSettings):
    """Producer properties of one topic, over those of [kafka]."""

    defaults: ClassVar[Mapping[str, Property]] = {}


class TopicSettings(Section):
    """One topic, by its name."""

    partitioner: Partitioner = Field(
        default="murmur2",
        description=(
            "How a key becomes a partition. `murmur2` agrees with the clients of the JVM. `id-modulo` takes "
            "whole-number keys by `id % partitions`. A key keeps its order only while its partition stays "
            "the same, so change this on an empty topic."
        ),
    )
    on_exceeded: OnExceeded | None = Field(
        default=None,
        description=(
            "What happens to a record of this topic that used up its attempts: `park`, `skip` or `block`, as in "
            "`relay.on_exceeded`, which applies where nothing is set here."
        ),
    )
    backend: BackendName | None = Field(
        default=None,
        description=(
            "Where `inorder.Publisher` sends messages of this topic: `db`, `kafka`, `kafka_async` or `memory`, as in "
            "`publisher.backend`, which applies where nothing is set here."
        ),
    )
    json_schema: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "A file with the JSON Schema of this topic's values, from the folder of the settings file that names it. "
            "`inorder.Publisher` refuses a message that breaks it, and the job `upsert` makes a dead letter of such a "
            "record (`schema-mismatch`). It needs `pip install 'inorder[schema]'`."
        ),
    )
    partitions: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "How many partitions the topic should have. `inorder topics apply` makes a topic that is missing; one that "
            "has fewer is never grown in place, since its keys would move between partitions and lose their order: "
            "`inorder topics failover NAME --partitions N` switches it to a new generation."
        ),
    )
    replication: Whole | None = Field(
        default=None,
        ge=1,
        description="How many replicas `inorder topics apply` gives a topic that it makes; else what the broker does.",
    )
    config: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description=(
            'Settings of the topic itself on the broker, such as `"retention.ms"` or `"max.message.bytes"`. '
            "`inorder topics apply` sets those that differ and leaves all others alone."
        ),
    )
    kafka: TopicKafkaSettings = Field(
        default_factory=lambda: TopicKafkaSettings({}),
        description=(
            "Properties of librdkafka for the producer of this topic, over those of [kafka]: "
            '`[topics.orders.kafka]` and below it `"linger.ms" = 20`. The backends `kafka` and `kafka_async` of the '
            "publisher use them, with one producer for each distinct set."
        ),
    )
