"""[pipeline]: how Kafka records become rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from inorder.settings.section import ColumnName, GroupName, Section, TableName, TopicName, Whole, matching
from inorder.settings.servers import JavaClientSettings, flatten

Engine = Literal["micro-batch", "resident"]
Mode = Literal["upsert", "insert", "update"]
Deletes = Literal["tombstone", "reject"]
Nulls = Literal["ignore", "write"]
Keyless = Literal["reject", "apply"]
OnMovedBack = Literal["stop", "replay"]
# The same as in inorder.pipeline.mapping; a test compares them.
KeyType = Literal["bigint", "integer", "text", "uuid"]
FieldType = Literal["boolean", "integer", "bigint", "double", "numeric", "text", "timestamp", "date", "uuid", "json"]


def _split_names(value: Any) -> Any:
    # Usually there is one name; a variable holds several as comma-separated text.
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _spark_properties(value: Any) -> Any:
    """TOML parses unquoted dotted keys into tables, and its values have types; Spark has neither."""
    if not isinstance(value, Mapping):
        return value
    flat = flatten(value)
    for name in flat:
        if not name.startswith("spark."):
            raise ValueError(f"{name!r} is no property of Spark: their names begin with `spark.`")
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in flat.items()}


SparkProperties = Annotated[dict[str, str], BeforeValidator(_spark_properties)]
KeyColumns = Annotated[list[ColumnName], BeforeValidator(_split_names)]
KeyTypes = Annotated[list[KeyType], BeforeValidator(_split_names)]


Target = Annotated[str, matching(r"delta:[^`\s{}]+", "`delta:` and a path without spaces, backticks and braces")]


def _seed_fields() -> dict[str, FieldType]:
    return {"enabled": "boolean", "data": "text"}


class UpsertSettings(Section):
    """The job `upsert`: the newest state of each key, in a table.

    For several tables use `[[pipeline.tables]]` instead, once per table, with the same keys.
    """

    topic: TopicName = Field(default="upsert", description="The topic that is read, all its partitions.")
    table: TableName = Field(
        default="messages",
        description="The table that is written, with a schema and a dot before it if needed.",
    )
    target: Target | None = Field(
        default=None,
        description=(
            "Where the rows are kept, if not in a table of `database.url`: `delta:` and the path of a Delta table, "
            "`delta:s3a://lake/messages`. `table` is then only its name, in commands and figures. It needs the engine "
            "`micro-batch`. All tables of a job are Delta tables, or none."
        ),
    )
    key: KeyColumns = Field(
        default="id",  # type: ignore[arg-type]  # validated as if it were given
        min_length=1,
        description=(
            "The field of a message that names its row: the primary key of the table. Not one of `fields`. A list "
            '(`["flight", "seat"]`, in a variable `flight,seat`) where the key has several columns; the key of the '
            'Kafka record is then their JSON array, `[7,"12A"]`.'
        ),
    )
    key_type: KeyTypes = Field(
        default="bigint",  # type: ignore[arg-type]  # validated as if it were given
        min_length=1,
        description=(
            "The type of the key column, or a list of types where there are several. `bigint` or `integer` for whole "
            "numbers, `uuid`, else `text`."
        ),
    )
    mode: Mode = Field(
        default="upsert",
        description=(
            "What a message may do. `upsert` inserts a missing row and updates an existing one. `insert` never "
            "changes an existing row, `update` never inserts one; what a message may not do is ignored, and "
            "counted."
        ),
    )
    fields: dict[ColumnName, FieldType] = Field(
        default_factory=_seed_fields,
        min_length=1,
        description=(
            "The other columns and their types. A field that a message lacks keeps its value, and so does one with an "
            "empty text. `timestamp` is RFC 3339 with a zone, `numeric` a number or a text of digits, `json` any JSON "
            'value. In a variable it is JSON: `INORDER_PIPELINE__UPSERT__FIELDS={"enabled": "boolean"}`.'
        ),
    )
    nulls: Nulls = Field(
        default="ignore",
        description=(
            "What a null field does. `ignore`: nothing, as if it were absent. `write`: it sets the column to NULL."
        ),
    )
    empty_texts: Nulls = Field(
        default="ignore",
        description=(
            'What `""` in a field of the type `text` does. `ignore`: nothing, as if it were absent. `write`: it sets '
            "the column to the empty text. In a field of another type it does nothing."
        ),
    )
    deletes: Deletes = Field(
        default="tombstone",
        description=(
            "What a message without a value does. `tombstone`: it deletes the row that its key names, and a row in "
            "`inorder_tombstone` keeps older messages from inserting it again. `reject`: it goes to the dead letters, "
            "as it always does in mode `insert`."
        ),
    )
    keyless: Keyless = Field(
        default="reject",
        description=(
            "What a message without a Kafka key does in a topic of several partitions, where nothing decides which of "
            "them it is in and its row would keep whatever was applied last. `reject`: it goes to the dead letters, "
            "and publishers take the key from the message. `apply`: it is applied, because the producer sends all "
            "messages of a row to one partition by other means. In a topic of one partition it is always applied."
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
    max_attempts: Whole = Field(
        default=3,
        ge=1,
        description=(
            "How often a row that the database refuses, for a constraint or a value too long, is attempted before its "
            "messages go to the dead letters. All attempts are in one transaction: a row that waits for another one of "
            "the same slice passes at the second attempt. Failures of the environment are retried and never counted."
        ),
    )
    max_refused_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description=(
            "If the database refuses more than this share of the messages of a slice, or of the last minute, with one "
            "error code, the table is taken to be at fault (a broken trigger, a missing partition): nothing is buried, "
            "and that Kafka partition waits until the table accepts its messages. Fewer than ten refused messages are "
            "buried in any case. With 1 no partition waits, and all refused messages go to the dead letters."
        ),
    )


class TableSettings(UpsertSettings):
    """One of several tables of the job `upsert`; topic and table have no defaults here."""

    topic: TopicName = Field(description="The topic that is read, all its partitions; it belongs to this table only.")
    table: TableName = Field(description="The table that is written.")


class PipelineSettings(Section):
    """The pipeline: Spark reads the topic, and one transaction applies each slice."""

    engine: Engine = Field(
        default="micro-batch",
        description=(
            "How Spark runs the job; both keep the same guarantees. `micro-batch` is Structured Streaming, one task "
            "per partition and batch: a row is written some tenths of a second after its message. `resident` runs "
            "long-lived tasks, each with some of the partitions: a row is written within milliseconds, and a backlog "
            "is processed faster. Each task holds a Spark core for as long as the job runs."
        ),
    )
    tasks: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "How many tasks the engine `resident` runs for a job at most; never more than there are partitions. On a "
            "cluster those without a core wait for one, so that dynamic allocation adds executors; the others read "
            "their partitions meanwhile. Without it: as many as there are cores, and on a cluster 32 more; or an equal "
            "part of the cores where several jobs run in one application."
        ),
    )
    master: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The Spark master. Without it Spark runs inside the command, on all cores of its machine. On a cluster "
            "every node needs this Python with inorder, and with `resident` tasks must reach `spark.driver.host`."
        ),
    )
    spark: SparkProperties = Field(
        default_factory=dict,
        description=(
            "Properties of Spark for all jobs, such as `spark.executor.memory`; they beat those of `spark-submit` and "
            "of spark-defaults.conf, which beat ours. Not for secrets: Spark shows its properties."
        ),
    )
    on_moved_back: OnMovedBack = Field(
        default="stop",
        description=(
            "What the job `upsert` does where a pointer is lower than one that it saw committed: the database went "
            "back, to a replica that lacks the last commits or to a backup, or a Delta table was restored. `stop`: "
            "nothing of that partition is applied any more, and the others go on. `replay`: it continues from the "
            "pointer that it finds; rows and pointer went back together, so the table ends the same. For databases "
            "whose failover may lose commits."
        ),
    )
    create_tables: bool = Field(
        default=False,
        description=(
            "Whether the job `upsert` creates a target table that does not exist. By default it refuses it, since its "
            "name may be mistyped; `inorder schema install --layout table` creates it. The table `messages`, where "
            "the settings name none, and the tables of inorder itself are created in any case, where the user may."
        ),
    )
    clean_seconds: float | None = Field(
        default=None,
        ge=1,
        description=(
            "How often the job `upsert` removes tombstones of deleted rows that no record can be older than any more "
            "(`inorder pipeline clean`). Without it they stay until the command is run."
        ),
    )
    optimize_seconds: float | None = Field(
        default=None,
        ge=1,
        description=(
            "How often the job `upsert` compacts the files of its Delta tables, between two batches, and removes those "
            "that no version of the last week needs (`inorder pipeline optimize`). Without it they stay until the "
            "command is run."
        ),
    )
    mirror_group: GroupName | None = Field(
        default=None,
        description=(
            "A consumer group whose committed offsets follow the pointers of the jobs `upsert` and `replicate`, so "
            "that kafka-consumer-groups, Kafbat, Burrow or KEDA show their lag. A copy, some seconds old: inorder "
            "never reads it. Name a group of its own, and one for each job. The user of `[kafka]` needs "
            "READ on the group and on the topics. Without it nothing is committed."
        ),
    )
    kafka_java: JavaClientSettings = Field(
        default_factory=lambda: JavaClientSettings({}),
        description=(
            "Properties of the Java client, with which the engine `micro-batch` and `inorder pipeline run audit` read: "
            '`[pipeline.kafka_java]` and below it `"ssl.truststore.location" = "/etc/kafka/trust.jks"`. Addresses, TLS '
            "and login are translated from [kafka], and these go over them. What cannot be translated is refused, by "
            "`inorder config check` too, unless there is a property of TLS (`ssl.`) or of the login (`sasl.`) here "
            "that replaces it."
        ),
    )
    upsert: UpsertSettings = Field(default_factory=UpsertSettings, description="The job `upsert`.")
    tables: list[TableSettings] = Field(
        default_factory=list,
        description=(
            "The tables of the job `upsert` where it has several: `[[pipeline.tables]]` once per table, with the keys "
            "of `[pipeline.upsert]`, which is then left out. One application of Spark reads all topics. In a "
            "variable it is a JSON list."
        ),
    )

    @property
    def may_create_tables(self) -> bool:
        """Whether a missing target table is created: where that is allowed, or where no name can be mistyped."""
        return self.create_tables or not (self.tables or "table" in self.upsert.model_fields_set)

    @property
    def targets(self) -> tuple[UpsertSettings, ...]:
        """The tables that the job `upsert` writes."""
        return tuple(self.tables) or (self.upsert,)
