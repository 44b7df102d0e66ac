"""[relay.polling]: offsets, missing and exceeded events, as PollingOutboxPublisher has them."""

from __future__ import annotations

from pydantic import Field

from inorder.outbox.layouts.trendyol.tables import SideTables
from inorder.settings.section import Section, TableName, Whole


class BreakerSettings(Section):
    """What keeps a daemon from asking a database that fails; the outbox and the missing events have one each."""

    is_enabled: bool = Field(
        default=True,
        description="Whether there are breakers. Without them whatever failed is tried again after `io_back_off_ms`.",
    )
    threshold: Whole = Field(
        default=3,
        ge=1,
        le=1000,
        description=(
            "After so many failures of the database in a row, SELECTs included, the breaker opens and the daemon rests."
        ),
    )
    open_seconds: Whole = Field(
        default=600,
        ge=1,
        le=86_400,
        description="How long an open breaker stays open before the database is tried again.",
    )
    half_open_attempts: Whole = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many tries a half-open breaker allows; if all of them fail it opens again.",
    )


class PollingSettings(Section):
    """The strategy `polling`: one offset, and two daemons for the outbox and for the missing events."""

    keep_order: bool = Field(
        default=True,
        description=(
            "Whether later events of a key wait for one that was read and could not be published. `false` lets them "
            "pass, as the original does."
        ),
    )
    queue_wait_ms: Whole = Field(
        default=100,
        ge=1,
        le=60_000,
        description="The pause before the next look at the outbox when there was nothing, in milliseconds.",
    )
    missing_batch_size: Whole = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Most missing events that are read and published together.",
    )
    missing_wait_ms: Whole = Field(
        default=20_000,
        ge=1,
        le=3_600_000,
        description=(
            "The pause between two attempts at the missing events, in milliseconds. An attempt is counted only after "
            "it, so `missing_max_retries` of them are a length of time."
        ),
    )
    missing_max_retries: Whole = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description=(
            "After so many attempts a missing event is moved to the exceeded ones, with the reason. An id whose "
            "transaction may still be open uses up none, where the database tells which are open."
        ),
    )
    broker_max_retries: Whole = Field(
        default=5,
        ge=1,
        le=1000,
        description=(
            "How often a batch that failed for a reason of the broker is tried again, `redelivery_delay_ms` apart, "
            "before the relay rests for `io_back_off_ms`. It uses up no attempts of an event."
        ),
    )
    redelivery_delay_ms: Whole = Field(
        default=250,
        ge=1,
        le=60_000,
        description="The pause before a batch is tried again after an error of the broker, in milliseconds.",
    )
    is_publishing_on: bool = Field(
        default=True,
        description=(
            "`false` does everything but the sending: **events are passed over and never published**. For load "
            "tests of the database; the logs say so."
        ),
    )
    missing_table: TableName = Field(
        default="missing_outbox_events",
        description="The missing events; in the schema of `relay.table` unless a schema stands before a dot.",
    )
    exceeded_table: TableName = Field(
        default="exceeded_outbox_events",
        description="The exceeded events; in the schema of `relay.table` unless a schema stands before a dot.",
    )
    offset_table: TableName = Field(
        default="outbox_offsets",
        description=("The offset, one row; in the schema of `relay.table` unless a schema stands before a dot."),
    )
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)

    @property
    def side_tables(self) -> SideTables:
        """The three tables beside the events."""
        return SideTables(self.missing_table, self.exceeded_table, self.offset_table)
