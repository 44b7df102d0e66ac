"""[topics.NAME]: what inorder must know of one topic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from inorder.settings.section import OnExceeded, Section

Partitioner = Literal["murmur2", "id-modulo"]


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
