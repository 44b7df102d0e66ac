"""[pipeline]: how records of Kafka become rows of a table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from inorder.settings.section import ColumnName, Planned, Section, TableName, TopicName, Whole

Engine = Annotated[Literal["micro-batch"], Planned("resident")]
Mode = Annotated[Literal["upsert"], Planned("insert", "update")]
# As inorder.pipeline.mapping has them; a test keeps the two together.
KeyType = Literal["bigint", "integer", "text"]
FieldType = Literal["boolean", "integer", "bigint", "double", "text"]


def _seed_fields() -> dict[str, FieldType]:
    return {"enabled": "boolean", "data": "text"}


class UpsertSettings(Section):
    """The job `upsert`: the newest state of each key, in a table."""

    topic: TopicName = Field(default="upsert", description="The topic that is read, all partitions of it.")
    table: TableName = Field(
        default="messages",
        description="The table that is written, with its schema before a dot where it has one.",
    )
    key: ColumnName = Field(
        default="id",
        description=("The field of a message that names its row: the primary key of the table. Not one of `fields`."),
    )
    key_type: KeyType = Field(
        default="bigint",
        description="The type of the key column. `bigint` or `integer` for whole numbers, else `text`.",
    )
    mode: Mode = Field(
        default="upsert",
        description=(
            "What a message may do. `upsert` makes the row where it is missing and updates it where it is there."
        ),
    )
    fields: dict[ColumnName, FieldType] = Field(
        default_factory=_seed_fields,
        min_length=1,
        description=(
            "The other columns and their types. A field that a message lacks keeps its value. In a variable "
            "it is "
            'JSON: `INORDER_PIPELINE__UPSERT__FIELDS={"enabled": "boolean"}`.'
        ),
    )
    max_value_bytes: Whole = Field(
        default=1_000_000,
        ge=1,
        description=(
            "A message with a longer value goes to the dead-letter table instead of the target. Raise it "
            "together with the topic's `max.message.bytes`."
        ),
    )


class PipelineSettings(Section):
    """The pipeline: Spark reads the topic, one transaction applies each slice."""

    engine: Engine = Field(
        default="micro-batch",
        description=(
            "How Spark runs the job. `micro-batch` is Structured Streaming, one task per partition and batch."
        ),
    )
    upsert: UpsertSettings = Field(default_factory=UpsertSettings, description="The job `upsert`.")
