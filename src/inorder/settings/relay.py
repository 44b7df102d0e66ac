"""[relay]: how rows of the outbox become records of Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from inorder.settings.section import GroupName, Planned, Section, TableName, Whole

# What is built of each field. The words after it in `Planned` are the contract's, and come with later
# versions.
Strategy = Annotated[Literal["drain"], Planned("mark-purge", "topic-lock", "polling")]
Layout = Annotated[Literal["native"], Planned("goharvest", "deimos", "trendyol", "debezium")]
Delivery = Annotated[Literal["exactly-once"], Planned("at-least-once")]
Leadership = Annotated[Literal["database", "none"], Planned("kafka", "redis")]
OnExceeded = Annotated[Literal["block"], Planned("park", "skip")]
SHARDS_BUILT = 1


def _shards_built(value: int) -> int:
    if value > SHARDS_BUILT:
        raise PydanticCustomError("not_built", "{built}", {"built": SHARDS_BUILT})
    return value


class RelaySettings(Section):
    """The relay: claims rows of the outbox, publishes them in order, removes them."""

    group: GroupName = Field(
        default="orders",
        description=(
            "Names this relay towards the world: its lease row, its transactional ids and its marker topic "
            "`inorder.<group>.marker`. Instances with one group share the work of one outbox. Give each "
            "outbox on a Kafka cluster a group of its own, or their relays would fence each other. Letters, "
            "digits, `.`, `_`, `-`."
        ),
    )
    strategy: Strategy = Field(
        default="drain",
        description=(
            "How rows are claimed and settled. `drain` reads the oldest rows, publishes them in one Kafka "
            "transaction with a marker of their ids, then deletes them."
        ),
    )
    layout: Layout = Field(
        default="native",
        description="Which columns the outbox table has. `native` is inorder's own.",
    )
    table: TableName = Field(
        default="outbox",
        description=("The outbox table, with its schema before a dot where it has one. Change it to fit your naming."),
    )
    delivery: Delivery = Field(
        default="exactly-once",
        description=(
            "What a reader with `isolation.level=read_committed` sees. `exactly-once` publishes each batch "
            "in a Kafka transaction; it needs `enable.idempotence` and `acks=all`, which are on."
        ),
    )
    leadership: Leadership = Field(
        default="database",
        description=(
            "Who works, when several instances run. It is a hint for efficiency; the broker's fence "
            "decides. `database` keeps a lease row. `none` asks nobody: for a single instance that "
            "something else guards."
        ),
    )
    shards: Annotated[Whole, AfterValidator(_shards_built)] = Field(
        default=1,
        ge=1,
        description="Into how many independent parts the outbox is split, each with an owner of its own.",
    )
    batch_size: Whole = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description=(
            "Most rows in one Kafka transaction. Larger batches carry more rows a second; smaller ones "
            "bring a row out sooner and hold less memory. Change it when rows are very large."
        ),
    )
    max_attempts: Whole = Field(
        default=5,
        ge=1,
        description=(
            "How often a record that the broker refuses for its content is tried, half a second apart, before "
            "`on_exceeded` applies. Outages never use up attempts."
        ),
    )
    on_exceeded: OnExceeded = Field(
        default="block",
        description=(
            "What happens when a record has used up its attempts. `block` keeps it in its place, logs "
            "`relay.blocked` as an error and tries again every 10 s: order is kept, and everything behind it "
            "waits until somebody repairs or deletes the row."
        ),
    )
