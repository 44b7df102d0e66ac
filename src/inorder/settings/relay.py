"""[relay]: how rows of the outbox become records of Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from inorder.settings.section import GroupName, OnExceeded, Planned, Section, TableName, Whole

# What is built of each field. The words after it in `Planned` are the contract's, and come with later
# versions.
Strategy = Annotated[Literal["drain"], Planned("mark-purge", "topic-lock", "polling")]
Layout = Annotated[Literal["native"], Planned("goharvest", "deimos", "trendyol", "debezium")]
Delivery = Literal["exactly-once", "at-least-once"]
Leadership = Literal["kafka", "database", "redis", "none"]
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
            "Names this relay towards the world: its lease, its transactional ids, its marker topic "
            "`inorder.<group>.marker` and its leader topic `inorder.<group>.leader`. Instances with one group "
            "share the work of one outbox. Give each "
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
            "What a reader with `isolation.level=read_committed` sees; the order of each key is kept either way. "
            "`exactly-once` publishes each batch in a Kafka transaction, and the broker fences instances that were "
            "replaced. `at-least-once` sends without transactions: a row is visible sooner, and what a relay had sent "
            "when it was killed, stopped or replaced may be sent again. Both need `enable.idempotence` and `acks=all`, "
            "which are on. Give all instances of a group the same value."
        ),
    )
    leadership: Leadership = Field(
        default="kafka",
        description=(
            "Who works, when several instances run. It is a hint for efficiency; the broker's fence "
            "decides. `kafka` elects the owner of partition 0 of the topic `inorder.<group>.leader`, and the "
            "next one takes over 6 s after a leader was killed (`session.timeout.ms` in [kafka]). `database` "
            "keeps a lease row that runs out after 3 s, `redis` a key that does (see `redis.url`). `none` asks "
            "nobody: for a single instance that something else guards."
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
        default="park",
        description=(
            "What happens when a record has used up its attempts. `park` sets it aside (`inorder exceeded list`) and "
            "lets its key wait until somebody retries or discards it; all other keys go on. `skip` sets it aside and "
            "goes on with its key. `block` keeps it in its place, logs `relay.blocked` and tries again every 10 s: "
            "everything behind it waits. `[topics.NAME]` may say otherwise for one topic."
        ),
    )
