"""[relay] with [relay.lease], [relay.polling] and [relay.topic_lock]: how outbox rows become Kafka records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from inorder.model.names import SideTables
from inorder.settings.section import GroupName, OnExceeded, Section, TableName, TopicName, Whole

# What both a column and a Redis key can hold.
_Name = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z0-9._:/@-]*$")]

# The client takes header names as C strings.
HeaderName = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")]

MARGIN_PARTS = 6
"""An owner stops this fraction of the lifetime before the lease ends."""


class LeaseSettings(Section):
    """The lease of a shard, with `relay.leadership` `redis` or `database`; give all instances the same values."""

    lifetime_ms: Whole = Field(
        default=3000,
        ge=300,
        le=600_000,
        description=(
            "After this long without an extension another instance may take the lease. Its owner stops a "
            f"{MARGIN_PARTS}th of it earlier, counted from before it requested the last extension. A shorter lifetime "
            "hands over sooner after a crash; a longer one tolerates a longer pause of the server."
        ),
    )
    race_interval_ms: Whole = Field(
        default=1000,
        ge=10,
        le=600_000,
        description=(
            "How often an owner extends the lease and the others try to take it. It must leave room in `lifetime_ms` "
            "for a late extension."
        ),
    )
    check_interval_ms: Whole = Field(
        default=100,
        ge=1,
        le=60_000,
        description=(
            "How often an instance checks, in memory, whether it leads; the server is asked every `race_interval_ms`."
        ),
    )
    name: _Name = Field(
        default="",
        description=(
            "The name of the lease: in Redis the key is `inorder:<name>:leader`, in the database it is the name in "
            "`inorder_lease`. With several shards `.` and the shard's number follow. Empty means `<group>.<shard>`."
        ),
    )
    owner: _Name = Field(
        default="",
        description=(
            "The owner that is written into the lease. Empty means host name, process id and a random part, `host` the "
            "host name; anything else is used literally. It must differ between instances that run at the same time: "
            "with `host` there may be one per host name."
        ),
    )

    @property
    def margin_ms(self) -> float:
        """How long before the end of the lease its owner stops working."""
        return self.lifetime_ms / MARGIN_PARTS


class BreakerSettings(Section):
    """Circuit breakers for a failing database; the outbox and the missing events have one each."""

    is_enabled: bool = Field(
        default=True,
        description="Whether breakers are used. Without them a failed operation is retried after `io_back_off_ms`.",
    )
    threshold: Whole = Field(
        default=3,
        ge=1,
        le=1000,
        description=(
            "After so many consecutive failures of the database, SELECTs included, the breaker opens and the daemon "
            "pauses."
        ),
    )
    open_seconds: Whole = Field(
        default=600,
        ge=1,
        le=86_400,
        description="How long a breaker stays open before the database is tried again.",
    )
    half_open_attempts: Whole = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many attempts a half-open breaker allows; if all of them fail it opens again.",
    )


class PollingSettings(Section):
    """The strategy `polling`: one offset, and a daemon each for the outbox and for the missing events."""

    keep_order: bool = Field(
        default=True,
        description=(
            "Whether later events of a key wait for one that could not be published. `false` publishes them, as the "
            "original does."
        ),
    )
    queue_wait_ms: Whole = Field(
        default=100,
        ge=1,
        le=60_000,
        description="The pause before the outbox is read again after an empty read, in milliseconds.",
    )
    missing_batch_size: Whole = Field(
        default=500,
        ge=1,
        le=100_000,
        description="The most missing events that are read and published together.",
    )
    missing_wait_ms: Whole = Field(
        default=20_000,
        ge=1,
        le=3_600_000,
        description=(
            "The pause between two attempts at the missing events, in milliseconds. An attempt is counted only after "
            "it, so `missing_max_retries` amounts to a length of time."
        ),
    )
    missing_max_retries: Whole = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description=(
            "After so many attempts a missing event becomes an exceeded one, with the reason. An id whose "
            "transaction may still be open uses up none, where the database shows open transactions."
        ),
    )
    broker_max_retries: Whole = Field(
        default=5,
        ge=1,
        le=1000,
        description=(
            "How often a batch that failed because of the broker is retried, `redelivery_delay_ms` apart, before the "
            "relay waits for `io_back_off_ms`. It uses up no attempts of an event."
        ),
    )
    redelivery_delay_ms: Whole = Field(
        default=250,
        ge=1,
        le=60_000,
        description="The pause before a batch is retried after an error of the broker, in milliseconds.",
    )
    is_publishing_on: bool = Field(
        default=True,
        description=(
            "`false` does everything but send: **events are skipped and never published**. For load tests of the "
            "database; it is logged."
        ),
    )
    missing_table: TableName = Field(
        default="missing_outbox_events",
        description="The table of missing events; in the schema of `relay.table` unless it names its own.",
    )
    exceeded_table: TableName = Field(
        default="exceeded_outbox_events",
        description="The table of exceeded events; in the schema of `relay.table` unless it names its own.",
    )
    offset_table: TableName = Field(
        default="outbox_offsets",
        description="The table of the offset, one row; in the schema of `relay.table` unless it names its own.",
    )
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)

    @property
    def side_tables(self) -> SideTables:
        """The three tables beside the events."""
        return SideTables(self.missing_table, self.exceeded_table, self.offset_table)


Strategy = Literal["drain", "mark-purge", "topic-lock", "polling"]
Layout = Literal["native", "goharvest", "debezium", "deimos", "trendyol"]
Delivery = Literal["exactly-once", "at-least-once"]
Leadership = Literal["kafka", "database", "redis", "none"]


# Defaults that follow from other settings.
DEIMOS_TABLE = "kafka_messages"
TRENDYOL_TABLE = "outbox_events"
TOPIC_LOCK_BATCH = 1000
POLLING_BATCH = 5000
IN_FLIGHT_LIMIT = 1000
ID_HEADER = "id"
"""As Debezium's outbox event router names it."""


def _split_topics(value: Any) -> Any:
    # A variable holds names as comma-separated text.
    if isinstance(value, str) and value != "all":
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


Topics = Annotated[Literal["all"] | list[TopicName], BeforeValidator(_split_topics)]


class TopicLockSettings(Section):
    """The strategy `topic-lock`: workers take turns with topics, each locked by a row of `kafka_topic_info`."""

    workers: Whole = Field(
        default=1,
        ge=1,
        le=100,
        description=(
            "How many workers this instance has. Each works on one topic at a time, so more workers than topics are "
            "useless. Every worker has its own producer and two database connections."
        ),
    )
    delete_group_size: Whole = Field(
        default=1000,
        ge=1,
        le=100_000,
        description=(
            "The most messages that one transaction deletes. Smaller groups hold locks for a shorter time; each costs "
            "a commit."
        ),
    )
    lock_seconds: Whole = Field(
        default=60,
        ge=1,
        le=3600,
        description=(
            "After this long without a renewal any worker may take a lock, and a topic pauses for this long after an "
            "error. A holder renews its lock four times in this time. Give all instances the same value."
        ),
    )
    idle_ms: Whole = Field(
        default=500,
        ge=1,
        le=60_000,
        description=(
            "The pause of a worker that found no messages, in milliseconds; on PostgreSQL inorder's writers end it."
        ),
    )
    compact_topics: Topics = Field(
        default=[],
        description=(
            'Topics, or `"all"`, of which only the last message of each key in a batch is sent; the others are '
            "deleted with it. Messages without a key are all sent."
        ),
    )
    log_topics: Topics = Field(
        default=[],
        description='Topics, or `"all"`, whose messages are logged as text before they are sent, as `relay.message`.',
    )


class RelaySettings(Section):
    """The relay: claims outbox rows, publishes them in order, and removes them."""

    group: GroupName = Field(
        default="orders",
        description=(
            "The name of this relay: of its lease, its transactional ids, its marker topic "
            "`inorder.<group>.marker` and its leader topic `inorder.<group>.leader`. Instances of one group "
            "share the work of one outbox. Give each outbox on a Kafka cluster its own group, or their relays would "
            "fence each other. Letters, digits, `.`, `_`, `-`."
        ),
    )
    strategy: Strategy = Field(
        default="drain",
        description=(
            "How rows are claimed and settled. `drain` reads the oldest rows, publishes them in one Kafka transaction "
            "with a marker of their ids, then deletes them. `mark-purge` writes the id of the leader into each row "
            "first (column `leader_id`), as goharvest does: others can see who works on a row, at the cost of one more "
            "write per row. `topic-lock` is that of Deimos: workers lock a topic by a row, send its messages and "
            "delete them; it needs the layout `deimos`, delivers `at-least-once` and is set in [relay.topic_lock]. "
            "`polling` is that of PollingOutboxPublisher: rows stay, an offset says how far they are published, and "
            "missing ids are looked for; it needs the layout `trendyol` and is set in [relay.polling]. All instances "
            "of a table must agree; `inorder relay reshard` changes it."
        ),
    )
    layout: Layout = Field(
        default="native",
        description=(
            "Which columns the outbox table has. `native` is inorder's own, `goharvest` and `debezium` are those of "
            "these tools, whose tables are used as they are (debezium's gets one more column; `inorder schema sql "
            "--layout debezium` shows which and why). `deimos` is that of Deimos' database backend, for the strategy "
            "`topic-lock`; `trendyol` is that of PollingOutboxPublisher, for the strategies `polling` and `drain`. "
            "Writers of foreign layouts send no notification, so an idle relay polls every half second."
        ),
    )
    table: TableName = Field(
        default="outbox",
        description=(
            "The outbox table, with a schema and a dot before it if needed. Change it to fit your naming. With the "
            f"layout `deimos` the default is `{DEIMOS_TABLE}`; its locks are in `kafka_topic_info`, in its schema; "
            f"with the layout `trendyol` it is `{TRENDYOL_TABLE}`."
        ),
    )
    delivery: Delivery = Field(
        default="exactly-once",
        description=(
            "What a reader with `isolation.level=read_committed` sees; the order of each key is kept either way. "
            "`exactly-once` publishes each batch in a Kafka transaction, and the broker fences instances that were "
            "replaced. `at-least-once` sends without transactions: a row is visible sooner, and what a relay had sent "
            "when it was killed, stopped or replaced may be sent again. Both need `enable.idempotence` and `acks=all`, "
            "which are on. Give all instances of a group the same value. With the strategy `topic-lock` the default, "
            "and all there is, is `at-least-once`."
        ),
    )
    id_header: HeaderName | None = Field(
        default=None,
        description=(
            "The header with the id of the outbox row, as decimal text, by which readers recognise a repeat; a row "
            "that has a header of this name keeps it, as those of the layout `debezium` do with `id`. An empty name "
            f"means no header. Without this setting it is `{ID_HEADER}` with `delivery` `at-least-once`, and there is "
            "none with `exactly-once`: no repeats come there, and a header on every record costs throughput. Choose "
            "another name if your messages have a header of this one, or if several outboxes write to a topic: ids "
            "are unique within one table."
        ),
    )
    leadership: Leadership = Field(
        default="kafka",
        description=(
            "How the working instance is elected when several run. It is a hint for efficiency; the broker's fence "
            "decides. `kafka` elects the owner of partition 0 of the topic `inorder.<group>.leader`, and the "
            "next one takes over 6 s after a leader is killed (`session.timeout.ms` in [kafka]). `database` "
            "keeps a lease row that runs out after 3 s, `redis` a key that does (see `redis.url`); [relay.lease] sets "
            "both. `none` has no election: for a single instance that something else supervises."
        ),
    )
    shards: Whole = Field(
        default=1,
        ge=1,
        le=1000,
        description=(
            "Into how many independent parts the outbox is split, by topic and key, each with its own owner. "
            "Instances share them. One shard carries a hundred thousand rows per second, so use more for more "
            "machines, or to keep a slow key from delaying others. All instances of a table must agree; "
            "`inorder relay reshard` changes it."
        ),
    )
    in_flight_limit: Whole = Field(
        default=IN_FLIGHT_LIMIT,
        ge=2,
        le=1_000_000,
        description=(
            "Strategy `mark-purge`: the most rows of a shard that are marked, sent and not yet acknowledged; "
            "`batch_size` must not be larger. The other strategies use `batch_size`."
        ),
    )
    mark_back_off_ms: Whole = Field(
        default=10,
        ge=1,
        le=10_000,
        description=(
            "Strategy `mark-purge`: the first wait after a mark that found no rows, in milliseconds; it doubles up to "
            "half a second while there are none."
        ),
    )
    io_back_off_ms: Whole = Field(
        default=500,
        ge=1,
        le=60_000,
        description="The wait after a failure of the database or the broker, in milliseconds.",
    )
    queue_timeout_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description=(
            "How long the current batch may fail before the relay drops it and claims its rows again, under a new "
            "leader id."
        ),
    )
    stop_seconds: Whole = Field(
        default=10,
        ge=1,
        le=600,
        description=(
            "How long `inorder relay run` may take to stop after SIGTERM or Ctrl-C: the current batch is finished and "
            "purged. A second signal ends it at once."
        ),
    )
    retention_days: Whole | None = Field(
        default=None,
        ge=1,
        le=3650,
        description=(
            "Keep published rows for so many days in `<table>_published`, one partition per day, for "
            "`inorder outbox replay`; whole partitions are dropped. For the native layout on PostgreSQL. Without it "
            "they are deleted."
        ),
    )
    batch_size: Whole = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description=(
            "The most rows in one Kafka transaction. Larger batches carry more rows per second; smaller ones "
            "publish a row sooner and use less memory. Change it when rows are very large. With the strategy "
            f"`topic-lock` it is the most messages that are sent together, and the default is {TOPIC_LOCK_BATCH}; with "
            f"`polling` the default is {POLLING_BATCH}, with `mark-purge` it is `in_flight_limit`."
        ),
    )
    batch_bytes: Whole = Field(
        default=64 * 1024 * 1024,
        ge=65_536,
        le=2**31 - 1,
        description=(
            "The most bytes of rows that are read at once, with every strategy; a row that is larger is read alone. A "
            "shard holds two such batches, and driver and client a copy of each, so its memory stays below about five "
            "times this whatever the rows are. With `topic-lock` it holds for each worker."
        ),
    )
    max_attempts: Whole = Field(
        default=5,
        ge=1,
        description=(
            "How often a record that the broker refuses for its content is attempted, half a second apart, before "
            "`on_exceeded` applies. Outages never use up attempts."
        ),
    )
    on_exceeded: OnExceeded = Field(
        default="park",
        description=(
            "What happens when a record has used up its attempts. `park` sets it aside (`inorder exceeded list`) and "
            "its key waits until you retry or discard it; all other keys continue. `skip` sets it aside and "
            "continues with its key. `block` keeps it in place, logs `relay.blocked` and retries every 10 s: "
            "everything behind it waits. `[topics.NAME]` overrides it for one topic."
        ),
    )
    reload_on_change: bool = Field(
        default=True,
        description=(
            "Whether `inorder relay run` reloads its file when it changes, checking once a second: [kafka], [topics], "
            "batch sizes, waits and limits. The current batch is finished first. A file with a mistake is logged as "
            "`relay.reload_refused` and changes nothing; a key that needs a restart is logged as "
            "`relay.restart_needed`."
        ),
    )
    topic_lock: TopicLockSettings = Field(default_factory=TopicLockSettings)
    polling: PollingSettings = Field(default_factory=PollingSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)

    @property
    def sent_id_header(self) -> str:
        """The header with a row's id as it is sent; empty for none."""
        if self.id_header is None:
            return ID_HEADER if self.delivery == "at-least-once" else ""
        return self.id_header

    def lease_name(self, shard: int) -> str:
        """The name of the lease of a shard, in the database and in Redis."""
        if self.lease.name and self.shards == 1:
            return self.lease.name
        return f"{self.lease.name or self.group}.{shard}"

    @model_validator(mode="before")
    @classmethod
    def _derive_defaults(cls, raw: Any) -> Any:
        """Fills in defaults that follow from other settings; values that are set are kept."""
        if not isinstance(raw, Mapping):
            return raw
        follows: dict[str, Any] = {}
        if raw.get("layout") == "deimos":
            follows["table"] = DEIMOS_TABLE
        if raw.get("layout") == "trendyol":
            follows["table"] = TRENDYOL_TABLE
        match raw.get("strategy"):
            case "topic-lock":
                follows |= {"delivery": "at-least-once", "batch_size": TOPIC_LOCK_BATCH}
            case "polling":
                follows["batch_size"] = POLLING_BATCH
            case "mark-purge":
                follows["batch_size"] = raw.get("in_flight_limit", IN_FLIGHT_LIMIT)
        return {**follows, **raw}
