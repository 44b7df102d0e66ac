"""The only place where ports meet adapters: settings in, running parts out."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import psycopg

from inorder.kafka.idempotent_log import IdempotentShardLog
from inorder.kafka.leadership import KafkaLease
from inorder.kafka.shard_log import KafkaShardLog
from inorder.leadership.unguarded import NoLease
from inorder.model.errors import ConfigurationError
from inorder.model.partition import Partitioner
from inorder.outbox.layouts import install_statements as outbox_statements
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import SliceOutcome
from inorder.ports.lease import Lease
from inorder.ports.shard_log import ShardLog
from inorder.relay.loop import RelayLoop
from inorder.settings import Settings
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.exceeded import (
    Action,
    ExceededRow,
    Filter,
    PostgresExceededStore,
    act_on_exceeded,
    list_exceeded,
)
from inorder.stores.postgres.exceeded import install_statements as exceeded_statements
from inorder.stores.postgres.install import install
from inorder.stores.postgres.lease import PostgresLease, lease_of
from inorder.stores.postgres.lease import install_statement as lease_statement
from inorder.stores.postgres.outbox import PostgresOutboxStore, waiting
from inorder.stores.postgres.sqlstate import our_errors
from inorder.stores.postgres.table import PostgresTableStores
from inorder.stores.postgres.table import install_statements as table_statements


class Relay:
    """The relay of your settings, on a thread of this process.

    >>> with Relay(Settings.load()) as relay:  # doctest: +SKIP
    ...     relay.wait()
    """

    def __init__(self, settings: Settings) -> None:
        url = _postgres_url(settings)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._store = PostgresOutboxStore(url, settings.relay.table)
        self._exceeded = PostgresExceededStore(url, settings.relay.table)
        self._shard = _shard_log(settings)
        self._loop = RelayLoop(
            self._store,
            self._exceeded,
            self._shard,
            _lease(settings, url),
            batch_size=settings.relay.batch_size,
            max_attempts=settings.relay.max_attempts,
            policy=lambda topic: settings.topic(topic).on_exceeded or settings.relay.on_exceeded,
            stop=self._stopping,
        )
        self._thread = threading.Thread(target=self._run, name="inorder-relay", daemon=True)

    @property
    def is_leader(self) -> bool:
        """Whether this instance owns the outbox at the moment."""
        return self._loop.progress.is_owner

    @property
    def published(self) -> int:
        """How many records this instance has published."""
        return self._loop.progress.published

    def start(self) -> None:
        """Begins to work; may be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Lets the batch in hand end, purges what is published, and returns. May be called twice."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the relay has ended, and says whether it has; raises what ended it."""
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as failure:  # noqa: BLE001 - handed to whoever waits
            self._failure = failure
        finally:
            self._store.close()
            self._exceeded.close()
            self._shard.close()


def relay_status(settings: Settings) -> dict[str, Any]:
    """What waits in the outbox, since when, and which instance owns it, where the lease tells."""
    with connect(_postgres_url(settings), "inorder status", autocommit=True) as connection:
        count, oldest = waiting(connection, settings.relay.table)
        owner, term = _lease_holder(settings, connection)
    age = (datetime.now(UTC) - oldest).total_seconds() if oldest else 0.0
    return {
        "group": settings.relay.group,
        "table": settings.relay.table,
        "waiting": count,
        "oldest_seconds": round(age, 3),
        "owner": owner,
        "term": term,
    }


def exceeded_rows(settings: Settings, **wanted: Any) -> list[ExceededRow]:
    """Rows that used up their attempts, oldest first; `wanted` are the fields of `Filter`."""
    return list_exceeded(_postgres_url(settings), settings.relay.table, Filter(**wanted))


def settle_exceeded(settings: Settings, action: Action, reason: str, **wanted: Any) -> list[ExceededRow]:
    """Retries or discards such rows, all or none, and notes the reason; returns them."""
    return act_on_exceeded(_postgres_url(settings), settings.relay.table, Filter(**wanted), action, reason)


def run_upsert(settings: Settings, *, master: str | None, once: bool, stop: threading.Event) -> dict[str, Any]:
    """Runs the job `upsert` on Spark until `stop` is set, or once; returns its totals in records."""
    from inorder.embedded import spark_jars
    from inorder.spark.java_client import java_properties
    from inorder.spark.micro_batch import MicroBatch
    from inorder.spark.session import LOCAL_MASTER, spark_session

    stores = PostgresTableStores(_postgres_url(settings), upsert_mapping(settings))
    _install(stores)
    totals: Counter[str] = Counter()

    def count(outcome: SliceOutcome) -> None:
        figures = asdict(outcome)
        totals.update({name: figures[name] for name in ("read", "applied", "rejected", "ignored", "replayed")})

    spark = spark_session("inorder upsert", jars=spark_jars(), master=master or LOCAL_MASTER)
    try:
        kafka = java_properties(settings.kafka.properties)
        MicroBatch(spark, stores, stores.mapping, kafka).run(stop, once, count)
    finally:
        spark.stop()
    return dict(totals)


def upsert_mapping(settings: Settings) -> TableMapping:
    """The mapping of the job `upsert`; its pipeline is named after the table it fills."""
    upsert = settings.pipeline.upsert
    return TableMapping(
        pipeline=f"upsert:{upsert.table}",
        topic=upsert.topic,
        table=upsert.table,
        key=upsert.key,
        key_type=upsert.key_type,
        fields=tuple(upsert.fields.items()),
        mode=upsert.mode,
        max_value_bytes=upsert.max_value_bytes,
    )


def install_schema(settings: Settings, layout: str) -> list[str]:
    """Makes the tables of a layout where they are missing; returns the statements that were run."""
    url = _postgres_url(settings)
    if layout == "table":
        _install(PostgresTableStores(url, upsert_mapping(settings)))
        return list(table_statements(upsert_mapping(settings)))
    made = _statements(settings, layout, "postgresql")
    with connect(url, "inorder schema") as connection, our_errors():
        install(connection, made)
    return made


def schema_sql(settings: Settings, layout: str, dialect: str) -> str:
    """The DDL of a layout as text, for migrations of your own."""
    return "\n".join(f"{statement.strip()};\n" for statement in _statements(settings, layout, dialect))


def _statements(settings: Settings, layout: str, dialect: str) -> list[str]:
    if layout == "table":
        _require_postgres(dialect, "The pipeline's tables")
        return list(table_statements(upsert_mapping(settings)))
    made = list(outbox_statements(layout, dialect, settings.relay.table))
    return [*made, lease_statement(), *exceeded_statements()] if dialect == "postgresql" else made


def _install(stores: PostgresTableStores) -> None:
    store = stores()
    try:
        store.install()
    finally:
        store.close()


def _shard_log(settings: Settings) -> ShardLog:
    properties, partitioners = settings.kafka.properties, _partitioners(settings)
    match settings.relay.delivery:
        case "exactly-once":
            return KafkaShardLog(properties, group=settings.relay.group, partitioners=partitioners)
        case "at-least-once":
            return IdempotentShardLog(properties, partitioners=partitioners)


def _lease(settings: Settings, url: str) -> Lease:
    owner = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    match settings.relay.leadership:
        case "kafka":
            return KafkaLease(settings.kafka.properties, group=settings.relay.group, owner=owner)
        case "database":
            return PostgresLease(url, name=_lease_name(settings), owner=owner)
        case "redis":
            # Here, because the package redis is an extra.
            from inorder.stores.redis.lease import RedisLease

            return RedisLease(settings.redis.require_url(), name=_lease_name(settings), owner=owner)
        case "none":
            return NoLease()


def _lease_holder(settings: Settings, connection: psycopg.Connection[Any]) -> tuple[str | None, int | None]:
    """Who holds the lease and in which term, as far as there is somebody to ask cheaply."""
    match settings.relay.leadership:
        case "database":
            return lease_of(connection, _lease_name(settings))
        case "redis":
            from inorder.stores.redis.lease import holder_of

            return holder_of(settings.redis.require_url(), _lease_name(settings)), None
        case "kafka" | "none":
            return None, None


def _lease_name(settings: Settings) -> str:
    return f"{settings.relay.group}.0"


def _partitioners(settings: Settings) -> dict[str, Partitioner]:
    """Topics whose partitions we choose ourselves; the client chooses for all others."""
    named = {name: Partitioner(topic.partitioner) for name, topic in settings.topics.items()}
    return {name: partitioner for name, partitioner in named.items() if partitioner is not Partitioner.MURMUR2}


def _postgres_url(settings: Settings) -> str:
    url = settings.database.require_url()
    _require_postgres(url.partition("://")[0].partition("+")[0], "The relay and the pipeline")
    return url


def _require_postgres(dialect: str, what: str) -> None:
    if dialect != "postgresql":
        raise ConfigurationError(
            f"{what} of this version need PostgreSQL, not {dialect!r}.",
            hint="Set database.url to postgresql+psycopg://user@host/db.",
        )
