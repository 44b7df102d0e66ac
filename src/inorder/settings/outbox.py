"""[publisher], [outbox] and [topics.NAME]: where messages go, how large they may be, and what holds for one topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from inorder.model.names import BackendName
from inorder.settings.section import OnExceeded, Section, Whole
from inorder.settings.servers import KafkaSettings, Property


class PublisherSettings(Section):
    """Where `inorder.Publisher` sends a message. The application makes the same call either way."""

    backend: BackendName = Field(
        default="db",
        description=(
            "Where messages go. `db` writes them into the outbox table in the caller's transaction, and the relay "
            "carries them to Kafka. `kafka` sends them and waits for all acknowledgements. `kafka_async` returns at "
            "once and sends in the background; what a killed process had not sent is lost. `memory` keeps them for "
            "the assertions of a test and sends nothing. `[topics.NAME]` overrides it for one topic."
        ),
    )
    checks_messages: bool = Field(
        default=True,
        description=(
            "Whether messages are checked before they are sent, as the pipeline will check them: against the mapping "
            "of their topic's table and against `[topics.NAME] json_schema`. What would become a dead letter is "
            "refused. `false` sends everything that Kafka accepts."
        ),
    )
    timeout_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description=(
            "Backend `kafka`: how long a call may wait for its acknowledgements. Then it raises an error that "
            "lists what was sent and what was not, a few seconds later at most."
        ),
    )
    queue_messages: Whole = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description=(
            "Backend `kafka_async`: the most messages that wait for acknowledgement, for each set of producer "
            "properties. When the queue is full, calls block until there is room: nothing is dropped."
        ),
    )
    queue_megabytes: Whole = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Backend `kafka_async`: the same limit in MiB of keys, values and headers.",
    )
    flush_seconds: Whole = Field(
        default=10,
        ge=1,
        le=3600,
        description=(
            "Backend `kafka_async`: how long `close()` and the end of the program wait for what is still queued. "
            "What is left then is not sent; it is logged as `publisher.left` and returned by `close()`."
        ),
    )


class OutboxSettings(Section):
    """What applications may write into the outbox."""

    max_value_bytes: Whole = Field(
        default=950_000,
        ge=1,
        description=(
            "A message with a longer value is refused before anything is written. The default leaves room "
            "for key, headers and framing below the limits of a fresh client and broker, 1,000,000 and "
            "1,048,588 bytes. Raise it together with the topic's `max.message.bytes` and the client's "
            "`message.max.bytes`."
        ),
    )


PartitionerName = Literal["murmur2", "id-modulo"]


class TopicKafkaSettings(KafkaSettings):
    """Producer properties of one topic, over those of [kafka]."""

    defaults: ClassVar[Mapping[str, Property]] = {}


class TopicSettings(Section):
    """What holds for one topic."""

    partitioner: PartitionerName = Field(
        default="murmur2",
        description=(
            "How a key becomes a partition. `murmur2` agrees with the clients of the JVM. `id-modulo` sends "
            "whole-number keys to `id % partitions`. A key keeps its order only while its partition stays "
            "the same, so change this on an empty topic only."
        ),
    )
    on_exceeded: OnExceeded | None = Field(
        default=None,
        description=(
            "What happens to a record of this topic that used up its attempts: `park`, `skip` or `block`, as in "
            "`relay.on_exceeded`, which applies where this is not set."
        ),
    )
    backend: BackendName | None = Field(
        default=None,
        description=(
            "Where `inorder.Publisher` sends messages of this topic: `db`, `kafka`, `kafka_async` or `memory`, as in "
            "`publisher.backend`, which applies where this is not set."
        ),
    )
    json_schema: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "A file with the JSON Schema of this topic's values, relative to the settings file that names it. "
            "`inorder.Publisher` refuses a message that violates it, and the job `upsert` makes such a record a dead "
            "letter (`schema-mismatch`). It needs `pip install 'inorder[schema]'`."
        ),
    )
    partitions: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "How many partitions the topic should have. `inorder topics apply` creates a missing topic; one with fewer "
            "partitions is never extended in place, since its keys would change partitions and lose their order: "
            "`inorder topics failover NAME --partitions N` switches it to a new generation."
        ),
    )
    replication: Whole | None = Field(
        default=None,
        ge=1,
        description="The replication factor of a topic that `inorder topics apply` creates; else the broker's default.",
    )
    config: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description=(
            'Settings of the topic itself on the broker, such as `"retention.ms"` or `"max.message.bytes"`. '
            "`inorder topics apply` sets those that differ and leaves all others unchanged."
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
