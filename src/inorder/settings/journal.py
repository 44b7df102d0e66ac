"""[journal]: events on Kafka topics, and the store that they are replicated to."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from inorder.settings.section import SecretUrl, Section, TopicName, TopicNameOrNone, Whole, check_scheme
from inorder.settings.servers import DatabaseSettings

SCHEMES = ("postgresql+psycopg", "cassandra")


class JournalSettings(Section):
    """Journals: append, read, delete and purge on Kafka, with a replicated store behind it."""

    topic_prefixes: list[TopicName] = Field(
        default=["journal"],
        description=(
            "Topics whose names begin like this hold journals. They must not be compacted, and their retention is how "
            "long replication may be down."
        ),
    )
    store: SecretUrl | None = Field(
        default=None,
        description=(
            "Where journals are replicated to and read from: a `postgresql+psycopg://` URL, or "
            "`cassandra://host:port/keyspace`. The default is the database of `database.url`."
        ),
    )
    segment_size: Whole = Field(
        default=10_000,
        ge=2,
        le=2**31 - 1,
        description=(
            "After so many sequence numbers the rows of a journal go to its next segment, so that no partition of the "
            "store grows without limit. It is stored with each journal at its first event, so a change affects "
            "new journals only."
        ),
    )
    head_cache: bool = Field(
        default=True,
        description=(
            "Follow each topic that is read, so that a read knows what the store lacks without a request to Kafka. It "
            "costs a consumer of all partitions for each topic; without it every read of a journal that is not "
            "replicated yet reads from Kafka."
        ),
    )
    replicated_topic: TopicNameOrNone = Field(
        default="inorder.journal.replicated",
        description=(
            "The compacted topic on which replicators announce their progress, so that readers can wait for it; it is "
            "created if it does not exist. Replicators and readers of a store must use the same. Empty: no "
            "announcements."
        ),
    )
    wait_for_store_ms: Whole = Field(
        default=0,
        ge=0,
        le=60_000,
        description=(
            "How long a read waits for the store where events that it needs are not replicated yet, before it reads "
            "them from Kafka; 0 reads Kafka at once. Set it above the replicator's usual delay (20 for the engine "
            "`resident`, 500 for `micro-batch`) to save consumers on the broker when there are many reads. While "
            "replication is down one read for each partition waits, the others do not."
        ),
    )
    snapshots: Whole = Field(
        default=10,
        ge=1,
        le=1000,
        description=(
            "How many snapshots a journal keeps: those with the largest numbers; a new one replaces the smallest. "
            "After it is lowered, a journal's next save removes the surplus."
        ),
    )
    timeout_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description="How long one step of an append or a read may take before it fails.",
    )
    expire_per_second: Whole = Field(
        default=100,
        ge=1,
        le=100_000,
        description=(
            "The most expired journals that the job `expire` purges per second. Each is one action in the log and "
            "some deletes in the store; catching up after a missed day should not slow writers down."
        ),
    )
    origin: str = Field(
        default="",
        max_length=200,
        description="The origin of a record, written to its header; empty means the host name.",
    )

    def store_url(self, database: DatabaseSettings) -> str:
        """The store's URL with its password; raises `ConfigurationError` where none is set."""
        return self.store.get_secret_value() if self.store else database.require_url()

    @field_validator("store", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return check_scheme(value, "a URL", SCHEMES)
