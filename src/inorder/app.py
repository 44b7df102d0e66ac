"""The composition root: everything that the settings describe, created on first use and closed together.

Commands and front ends ask an `App` for services and know nothing of how these are put together. Operator services
share one connection to the database of the outbox. Loops and jobs that run for long get connections of their own:
a statement of one must never wait for another.

A product builds its own parts from its settings (`relay.parts`, `journal.service`, `pipeline.job`); this is the only
module that knows all products.
"""

from __future__ import annotations

import getpass
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from inorder.database.database import Closable, Database, dialect_of
from inorder.database.schema_plan import SchemaChange, catalogue_of, plan_changes
from inorder.engines.job_status import JobService, JobServices, Lag
from inorder.engines.mirror import PointerMirror, mirrored
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.engines.running import SparkChoice, SparkEngine
from inorder.engines.survey import Backlog, look_behind
from inorder.journal.audit.findings import AuditFinding
from inorder.journal.audit.job import Audit
from inorder.journal.jobs import Expired, ExpireJob, UncompactedTopics, replicate_work, run_replicate
from inorder.journal.projection import Projection
from inorder.journal.projection_runner import PartitionStatus
from inorder.journal.service import JournalAdmin, Journals, journal_store, journal_topics, topic_look_up
from inorder.journal.stores.kafka_notices import announcers
from inorder.journal.stores.opening import (
    JournalReplicas,
    JournalStore,
    StoredRows,
    plan_journal_store,
    prepare_journal_store,
)
from inorder.journal.topic_identity import TopicGuard
from inorder.kafka.admin import Cluster, commit_group_offsets, probe
from inorder.model.errors import ConfigurationError, RejectedError, UnreachableError
from inorder.model.partitioning import Partitioner, Place
from inorder.observe.endpoint import PeriodicReader
from inorder.observe.metrics import read_served
from inorder.operate import doctor, status
from inorder.operate.actions import ActionLog, Actor, Logged, Outcome
from inorder.operate.changes import LoggedChanges
from inorder.operate.flow import Flow, flow_of
from inorder.operate.journals import JournalLookup
from inorder.operate.key_lookup import Before, DatabaseHops, KeyLookup
from inorder.operate.key_trace import KeyTrace
from inorder.operate.roles import PREFIX, granted_layouts, roles_sql
from inorder.operate.running import OwnerTimes, job_figures, relay_figures
from inorder.operate.schema import JOURNAL, configured_layouts, schema_sql, schema_statements
from inorder.operate.set_aside import SetAside
from inorder.operate.topics import TopicAdmin
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
from inorder.pipeline.growth import NewColumn, apply_columns, plan_columns
from inorder.pipeline.job import (
    UPSERT,
    GenerationGate,
    UpsertWork,
    prepare_tables,
    run_upsert,
    table_mappings,
    upsert_work,
)
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.reset import PipelineReset, PointerReset
from inorder.pipeline.status import (
    pipeline_backlog,
    pipeline_lag,
    pipeline_progress,
    pipeline_status,
)
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.tombstones import CleanedTombstones, TombstoneCleaning
from inorder.relay import reshard
from inorder.relay.on_spark import run_relay
from inorder.relay.parts import RelayParts, require_pausable
from inorder.relay.reloading import RelayService
from inorder.relay.status import RelayAdmin
from inorder.relay.stores.ports import Registration
from inorder.settings import Settings
from inorder.settings.root import find_conflicts
from inorder.topics.migration import Migration, migrate_here, run_migrate
from inorder.topics.pauses import Pause, PauseKind, SqlPauses
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from inorder.verify.run import VerifyPlan, VerifyRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C = TypeVar("C", bound=Closable)

ANSWER_SECONDS = 2.0
"""How long brokers have to accept a connection, before a status is read without them."""


class App:
    """The services of some settings; a context manager. Nothing connects before it is used."""

    def __init__(
        self,
        settings: Settings,
        *,
        spark: SparkSession | None = None,
        spark_shared_by: int | None = None,
        actor: Actor | None = None,
    ) -> None:
        """`spark` is a session of the caller's, for the jobs that run on Spark; `actor` is by default the user.

        `spark_shared_by` jobs divide its cores among them.
        """
        self.settings = settings
        self._actor = actor
        self._spark = spark
        self._spark_shared_by = spark_shared_by
        self._opened = ExitStack()
        self._owner_times = OwnerTimes()

    def close(self) -> None:
        """Closes what was opened; may be called twice."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, resource: C) -> C:
        return self._opened.enter_context(closing(resource))

    # What several services use.

    @cached_property
    def database(self) -> Database:
        """The database of the outbox, on the connection that all operator services share."""
        return self._keep(self.relay.open_database("inorder"))

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self.settings.kafka.properties)

    @cached_property
    def relay(self) -> RelayParts:
        return RelayParts(self.settings)

    @cached_property
    def generations(self) -> SqlTopicGenerations:
        return SqlTopicGenerations(self.database)

    @cached_property
    def pointers(self) -> SqlPointers:
        return SqlPointers(self.database)

    @cached_property
    def journal_store(self) -> JournalStore:
        return self._keep(journal_store(self.settings))

    @cached_property
    def journals(self) -> Journals:
        journals = self._keep(Journals(self.settings))
        journals.slow_calls = None  # a command connects in its first call, which a service does once
        return journals

    @cached_property
    def upsert_work(self) -> UpsertWork:
        return upsert_work(self.settings)

    @cached_property
    def spark_choice(self) -> SparkChoice:
        pipeline = self.settings.pipeline
        return SparkChoice(pipeline.master, pipeline.spark, self._spark, self._spark_shared_by)

    @cached_property
    def spark_engine(self) -> SparkEngine:
        pipeline = self.settings.pipeline
        properties, java = self.settings.kafka.properties, pipeline.kafka_java.properties
        return SparkEngine(pipeline.engine, self.spark_choice, properties, pipeline.on_moved_back, java, pipeline.tasks)

    def table_mappings(self) -> list[TableMapping]:
        return table_mappings(self.settings)

    def journal_topics(self) -> tuple[str, ...]:
        return journal_topics(self.cluster, self.settings.journal.topic_prefixes)

    # What an operator asks for.

    @cached_property
    def relay_admin(self) -> RelayAdmin:
        return RelayAdmin(self.relay, self.database)

    @cached_property
    def dead_letters(self) -> DeadLetterAdmin:
        letters = SqlDeadLetters(self.database)
        return DeadLetterAdmin(letters, self.generations, lambda: self.upsert_work, self.settings.kafka.properties)

    @cached_property
    def _acting(self) -> Actor:
        return self._actor or Actor(_user(), "command")

    @cached_property
    def action_log(self) -> ActionLog:
        return ActionLog(lambda: self.database, self._acting, is_required=self._acting.origin != "command")

    @cached_property
    def set_aside(self) -> SetAside:
        return SetAside(
            self.action_log, lambda: self.relay_admin, lambda: self.dead_letters, lambda: self.journal_admin
        )

    @cached_property
    def changes(self) -> LoggedChanges:
        return LoggedChanges(self.action_log, self)

    @cached_property
    def topics(self) -> TopicAdmin:
        registry = self.relay.registry(self.database)
        return TopicAdmin(self.settings.topics, self.generations, self.pointers, self.relay, registry)

    @cached_property
    def _pauses(self) -> SqlPauses:
        return SqlPauses(self.database)

    def pauses(self) -> tuple[Pause, ...]:
        """What operators have paused."""
        return self._pauses.read().rows

    def pause(self, kind: PauseKind, name: str, *, reason: str) -> Logged[None]:
        """Pauses a topic of the relay, or a table or job of the pipeline; the log of actions has it."""
        self._require_known(kind, name)
        pause = partial(self._pauses.pause, kind, name, reason=reason, by=self._acting.name)
        return self.action_log.record("pause", {kind.value: name}, reason, pause, lambda _: Outcome({"paused": 1}))

    def resume(self, kind: PauseKind, name: str, *, reason: str = "") -> Logged[bool]:
        """Ends a pause; False if there is none."""
        resume = partial(self._pauses.resume, kind, name)
        return self.action_log.record(
            "resume", {kind.value: name}, reason, resume, lambda was_paused: Outcome({"resumed": int(was_paused)})
        )

    def _require_known(self, kind: PauseKind, name: str) -> None:
        """Refuses names that nothing would ever look up; topics are known to publishers only."""
        if kind is PauseKind.TOPIC:
            return
        if kind in (PauseKind.KEY, PauseKind.SHARD):
            require_pausable(self.settings.relay, kind, name)
            return
        known = [UPSERT] if kind is PauseKind.PIPELINE else [each.table for each in self.table_mappings()]
        if name not in known:
            raise ConfigurationError(f"There is no {kind} {name!r} to pause.", hint=f"There are: {', '.join(known)}.")

    @cached_property
    def journal_admin(self) -> JournalAdmin:
        journal = self.settings.journal
        return JournalAdmin(
            self.journal_store,
            JournalReplicas(journal.store_url(self.settings.database)),
            self.cluster,
            topic_prefixes=journal.topic_prefixes,
            segment_size=journal.segment_size,
        )

    @cached_property
    def journal_lookup(self) -> JournalLookup:
        return JournalLookup(
            lambda: self._read_journals, lambda *asked: self.journal_store.journals(*asked), self.journal_topics
        )

    @cached_property
    def _read_journals(self) -> Journals:
        """Without the head cache, which would follow every topic that was ever looked at."""
        journal = self.settings.journal.model_copy(update={"head_cache": False})
        journals = self._keep(Journals(self.settings.model_copy(update={"journal": journal})))
        journals.slow_calls = None
        return journals

    def pipeline_status(self) -> dict[str, Any]:
        source = KafkaSource(dict(self.settings.kafka.properties))
        return pipeline_status(self.table_mappings(), self.database, source)

    def pipeline_backlog(self) -> Backlog:
        """What is not applied, for the metrics of the job `upsert`."""
        source = KafkaSource(dict(self.settings.kafka.properties))
        return pipeline_backlog(self.table_mappings(), self.database, source)

    def pipeline_lag(self) -> dict[Place, int]:
        """How many offsets of each partition wait for the job `upsert`."""
        return pipeline_lag(self.table_mappings(), self.database, KafkaSource(dict(self.settings.kafka.properties)))

    def journal_backlog(self) -> Backlog:
        """The same for the job `replicate`."""
        rows = self.journal_admin.lag()
        waiting = {(row.topic, row.partition): row.behind for row in rows}
        pointers = {(row.topic, row.partition): -1 if row.replicated is None else row.replicated for row in rows}
        source = KafkaSource(dict(self.settings.kafka.properties))
        return look_behind(source, waiting, {place: offset + 1 for place, offset in pointers.items()})

    def plan_columns(self, table: str | None = None) -> list[NewColumn]:
        """The fields that the mappings do not name, or that of one table, with what would add their columns."""
        source = KafkaSource(dict(self.settings.kafka.properties))
        found = [each for each in self.table_mappings() if table in (None, each.table)] or [self._mapping_of(table)]
        return [column for mapping in found for column in plan_columns(mapping, self.database, source)]

    def apply_columns(
        self, chosen: Mapping[str, str], table: str | None = None, *, dry_run: bool = False
    ) -> list[NewColumn]:
        """Adds columns to a table of the job `upsert`; `table` may be left out where there is one."""
        return apply_columns(self._mapping_of(table), self.database, chosen, dry_run=dry_run)

    def _mapping_of(self, table: str | None) -> TableMapping:
        found = [each for each in self.table_mappings() if table in (None, each.table)]
        if len(found) == 1:
            return found[0]
        tables = ", ".join(each.table for each in self.table_mappings())
        raise ConfigurationError(
            "The job upsert writes several tables." if table is None else f"The job upsert writes no table {table!r}.",
            hint=f"Name one of them with --table: {tables}.",
        )

    def reset_pipeline(self, topic: str, *, from_first: bool = False, dry_run: bool = False) -> list[PointerReset]:
        """Accepts what has become of a topic of the job `upsert`; returns the pointers that changed."""
        source = KafkaSource(dict(self.settings.kafka.properties))
        reset = PipelineReset(self.upsert_work, self.database, self.generations, source)
        return reset.run(topic, from_first=from_first, dry_run=dry_run)

    def clean_tombstones(self, *, dry_run: bool = False) -> list[CleanedTombstones]:
        """Removes tombstones of the job `upsert` that are of no use any more."""
        return self._cleaning_of(self.database).run(dry_run=dry_run)

    def _cleaning_of(self, database: Database) -> TombstoneCleaning:
        source, generations = KafkaSource(dict(self.settings.kafka.properties)), SqlTopicGenerations(database)
        # Delta tables keep theirs among the rows.
        mappings = [each for each in self.table_mappings() if not each.target]
        return TombstoneCleaning(mappings, database, generations, source)

    def optimize_tables(self, hours: int | None = None) -> list[dict[str, Any]]:
        """Compacts the Delta tables of the job `upsert`, on Spark; returns what was done for each."""
        mappings = [each for each in self.table_mappings() if each.target]
        if not mappings:
            raise ConfigurationError(
                "No table of the job upsert is a Delta table.", hint="This is for tables with a `target` in [pipeline]."
            )
        from inorder.engines.session import open_session
        from inorder.pipeline.stores.delta_table import VACUUM_HOURS, DeltaTableStore

        with open_session("inorder optimize", self.spark_choice, needs_delta=True) as spark:
            return [DeltaTableStore(spark, each).optimize(hours or VACUUM_HOURS) for each in mappings]

    def parts(self) -> dict[str, Callable[[], status.Part]]:
        """How to read the state of each product, with all of its lists."""
        return {
            "relay": lambda: {
                **status.relay_part(self.relay_admin, times=self._owner_times),
                "served": relay_figures(read_served(self.settings.health.address), self.settings.relay.group),
            },
            "topics": self._topics_part,
            "pipeline": lambda: {
                **status.pipeline_part(self.pipeline_status(), self.dead_letters),
                "engine": self.settings.pipeline.engine,
                "jobs": job_figures(read_served(self.settings.health.address)),
            },
            "journal": lambda: status.journal_part(self.journal_admin),
        }

    def _topics_part(self) -> status.Part:
        topics, pauses, counts = self.topics, self.pauses(), self.cluster.partition_counts()
        try:
            waiting = self.relay_admin.waiting_topics()
        except (ConfigurationError, RejectedError):
            waiting = []  # the table is missing, or not ours to read: the part `relay` says so
        prefixes, targets = tuple(self.settings.journal.topic_prefixes), self.settings.pipeline.targets
        uses = {
            "settings": self.settings.topics,
            "outbox": waiting,
            "table": self.settings.named_topics() & {target.topic for target in targets},
            "journal": [name for name in counts if name.startswith(prefixes)],
        }
        return status.topics_part(topics, pauses, uses, counts)

    def checks(self) -> dict[str, Callable[[], status.Part]]:
        """How to see whether each server answers."""
        return {
            "database": lambda: status.database_part(self.database),
            "kafka": lambda: status.kafka_part(self.cluster),
        }

    def _read_apart(self, name: str, away: UnreachableError | None) -> status.Part:
        """One part with connections of its own, so that it waits for no other; `away` is why Kafka does not answer."""
        with App(self.settings) as app:
            if away is not None and name == "relay":
                return status.relay_part(app.relay_admin, asks_kafka=False)
            if away is not None and name != "database":
                raise away
            return {**app.checks(), **app.parts()}[name]()

    def _read_now(self, names: Iterable[str]) -> dict[str, status.Part]:
        """Parts and checks, all read at once; one that cannot be read has an error.

        If no broker accepts a connection, nothing that needs Kafka is tried.
        """
        away = probe(self.settings.kafka.bootstrap_servers, ANSWER_SECONDS)
        return status.read_together({name: partial(self._read_apart, name, away) for name in names})

    def status(self) -> dict[str, status.Part]:
        """The state of each product, read now."""
        return {name: status.short(part) for name, part in self._read_now(self.parts()).items()}

    def flow(self) -> Flow:
        """The flow of events at a glance, read now."""
        return flow_of(self._read_now({**self.checks(), **self.parts()}))

    def trace_key(
        self, key: str, *, topic: str | None = None, everywhere: bool = False, before: Before | None = None
    ) -> KeyTrace:
        """What each hop has of a key; see `KeyLookup.trace`."""
        stored = None
        if self.settings.database.url is not None:
            stored = DatabaseHops(
                self.database,
                self.relay,
                self.relay_admin,
                self.generations,
                self.pointers,
                self.dead_letters,
                self._pauses,
            )
        lookup = KeyLookup(
            stored,
            self.cluster,
            self.settings.kafka.properties,
            self.settings.partitioners(),
            self.table_mappings,
            self.journal_topics,
            lambda: self.journal_store,
            self.settings.relay.sent_id_header,
        )
        return lookup.trace(key, topic=topic, everywhere=everywhere, before=before)

    def examine(self) -> list[doctor.Check]:
        """Every check of the doctor."""
        return doctor.examine(self.settings)

    def verification(self, plan: VerifyPlan, stop: threading.Event, say: Callable[[str], None]) -> VerifyRun:
        """A verification of this installation from outside; nothing happens before it is executed."""

        def kafka_topic_of(topic: str) -> str:
            state = None if plan.topic is None else self.generations.read(topic)
            return topic if state is None else state.current.topic

        return VerifyRun(self.settings, plan, kafka_topic_of=kafka_topic_of, stop=stop, say=say)

    def install_schema(self, layout: str) -> list[SchemaChange]:
        """Creates the tables of a layout where they are missing; returns what was missing."""
        planned = self.plan_schema(layout)
        if layout == JOURNAL:
            self.journal_store.install()
        else:
            self.database.install(self._schema_statements(layout))
        return planned

    def plan_schema(self, layout: str) -> list[SchemaChange]:
        """What `install_schema` would change; nothing is written."""
        if layout == JOURNAL:
            return plan_journal_store(self.settings.journal.store_url(self.settings.database))
        return plan_changes(self._schema_statements(layout), catalogue_of(self.database))

    def configured_layouts(self) -> list[str]:
        """The layouts that the settings name."""
        return configured_layouts(self.settings)

    def _schema_statements(self, layout: str) -> list[str]:
        return schema_statements(self.settings, layout, dialect_of(self.settings.database.require_url()))

    def schema_sql(self, layout: str, dialect: str | None = None) -> str:
        """The DDL of a layout; nothing connects."""
        return schema_sql(self.settings, layout, dialect)

    def roles_sql(self, layout: str | None, dialect: str, prefix: str = PREFIX) -> str:
        """The GRANTs for the tables of a layout, or of those that the settings name; nothing connects."""
        layouts = granted_layouts(self.settings) if layout is None else [layout]
        return roles_sql(self.settings, layouts, dialect, prefix)

    def reshard(self, *, shards: int | None = None, restored: bool = False) -> Registration:
        """Makes the group, strategy and shards of the settings, or so many `shards`, what is registered."""
        settings = self.settings
        if shards is not None:
            relay = settings.relay.model_copy(update={"shards": shards})
            settings = settings.model_copy(update={"relay": relay})
            if against := find_conflicts(settings):
                raise ConfigurationError("\n".join(against))
        return reshard.reshard(RelayParts(settings), self.database, restored=restored)

    def replay_outbox(
        self,
        *,
        key: bytes | None = None,
        topic: str | None = None,
        since: datetime | None = None,
        dry_run: bool = False,
    ) -> int:
        """Puts copies of published rows into the outbox, in their order; returns how many."""
        from inorder.outbox.stores.retention import replay

        url = self.relay.require_postgres_url("Kept rows")
        return replay(url, self.settings.relay.table, key=key, topic=topic, since=since, dry_run=dry_run)

    # What runs until it is stopped.

    def relay_service(self, file: Path, load: Callable[[], Settings]) -> RelayService:
        """The relay of these settings, which `load` reads again when the file changes."""
        return RelayService(self.settings, file, load)

    def job_service(self, job: str, lag: Callable[[], Lag | Backlog]) -> JobService:
        """Health and metrics of a job, where `health.listen` is set."""
        return JobService(self.settings.health.address, job, lag, self._checks_of(job))

    def _checks_of(self, job: str) -> dict[str, Callable[[], object]]:
        """How to ask the servers that a job needs, on connections of their own: others may be busy for long."""
        if self.settings.health.address is None:
            return {}
        kafka = {"kafka": Cluster(self.settings.kafka.properties).info}
        if job in ("replicate", "expire"):
            return {"store": self._keep(journal_store(self.settings)).identity, **kafka}
        if self.settings.database.url is None:
            return {**kafka}
        database = self._keep(self.relay.open_database("inorder health"))
        return {"database": lambda: status.database_part(database), **kafka}

    def job_services(self, lags: Mapping[str, Callable[[], Lag | Backlog]]) -> JobServices:
        """The same of several jobs in one application."""
        checks = {name: check for job in lags for name, check in self._checks_of(job).items()}
        return JobServices(self.settings.health.address, lags, checks)

    def run_relay(self, *, once: bool, stop: threading.Event) -> dict[str, Any]:
        """The job `relay`."""
        return run_relay(self.settings, self.spark_choice, once=once, stop=stop)

    def run_upsert(self, *, once: bool, stop: threading.Event, listener: Listener = NULL_LISTENER) -> dict[str, Any]:
        """The job `upsert`."""
        with closing(self.relay.open_database("inorder pipeline (generations)")) as database:
            pauses = SqlPauses(database)
            gate = GenerationGate(SqlTopicGenerations(database), SqlPointers(database), pauses.read)
            prepare_tables(self.upsert_work.targets, database, creates=self.settings.pipeline.may_create_tables)
            with self.mirror(self.upsert_pointers), self.cleaning():
                return run_upsert(self.upsert_work, self.spark_engine, gate, once=once, stop=stop, listener=listener)

    def run_replicate(self, *, once: bool, stop: threading.Event, listener: Listener = NULL_LISTENER) -> dict[str, Any]:
        """The job `replicate`."""
        with closing(journal_store(self.settings)) as store:
            prepare_journal_store(self.settings.journal.store_url(self.settings.database), store)
            announced = announcers(self.settings.kafka.properties, self.settings.journal, store)
        work = replace(replicate_work(self.settings), announcers=announced)
        with self.mirror(self.journal_pointers):
            topics = UncompactedTopics(self.cluster, self.journal_topics)
            return run_replicate(work, self.spark_engine, topics, once=once, stop=stop, listener=listener)

    def mirror(
        self, read: Callable[[], tuple[Mapping[Place, int], Mapping[Place, int]]]
    ) -> AbstractContextManager[object]:
        """Copies pointers into the consumer group of `pipeline.mirror_group` while the block lasts, if that is set.

        `read` returns the pointers, and the ends of closed generations.
        """
        group, properties = self.settings.pipeline.mirror_group, dict(self.settings.kafka.properties)
        if group is None:
            return nullcontext()

        def offsets() -> dict[Place, int]:
            pointers, ends = read()
            return mirrored(KafkaSource(properties), sorted({topic for topic, _ in pointers}), pointers, ends)

        return PointerMirror(offsets, partial(commit_group_offsets, properties, group))

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Removes useless tombstones now and then while the block lasts, if `pipeline.clean_seconds` is set."""
        if (seconds := self.settings.pipeline.clean_seconds) is None:
            yield
            return
        with closing(self.relay.open_database("inorder pipeline (tombstones)")) as database:
            periodic = PeriodicReader("tombstones", self._cleaning_of(database).run, seconds=seconds)
            periodic.start()
            try:
                yield
            finally:
                periodic.stop()

    def upsert_pointers(self) -> tuple[Mapping[Place, int], Mapping[Place, int]]:
        """The pointers of the job `upsert`, and where its closed generations end."""
        read = pipeline_progress(self.table_mappings(), self.database)
        return read.pointers, read.ends

    def journal_pointers(self) -> tuple[Mapping[Place, int], Mapping[Place, int]]:
        """The pointers of the job `replicate`; a topic of journals has one generation."""
        rows = self.journal_admin.lag()
        return {(row.topic, row.partition): row.replicated + 1 for row in rows if row.replicated is not None}, {}

    def run_expire(
        self,
        *,
        once: bool,
        stop: threading.Event,
        dry_run: bool = False,
        on_expired: Callable[[Expired], None] = lambda _expired: None,
        today: Callable[[], date] | None = None,
        service: JobService | None = None,
    ) -> dict[str, Any]:
        """The job `expire`."""
        job = ExpireJob(
            lambda metrics: Journals(self.settings, metrics=metrics),
            partial(journal_store, self.settings),
            self.journal_topics,
            per_second=self.settings.journal.expire_per_second,
            dry_run=dry_run,
            on_expired=on_expired,
            service=service,
            **({} if today is None else {"today": today}),
        )
        return job.run(once=once, stop=stop)

    def project(
        self,
        projection: Projection,
        *,
        once: bool,
        stop: threading.Event,
        database: str | None = None,
        service: JobService | None = None,
    ) -> dict[str, int]:
        """Runs a projection until `stop` is set, or once; returns how many changes of each kind came."""

        def report(reason: str) -> None:
            if service is not None:
                service.hindrance = reason

        with Journals(self.settings, metrics=service.registry if service else None) as journals:
            return journals.project(projection, database=database, on_waiting=report).run(once=once, stop=stop)

    def projection_status(self, projection: Projection, database: str | None = None) -> list[PartitionStatus]:
        """How far a projection is, whichever instances run."""
        return self.journals.project(projection, database=database).status()

    def reset_projection(self, projection: Projection, database: str | None = None) -> int:
        """Forgets how far a projection is; returns the number of its partitions."""
        return self.journals.project(projection, database=database).reset()

    def audit(
        self, on_finding: Callable[[AuditFinding], None], *, topic: str | None = None, id: str | None = None
    ) -> Audit:
        """The job `audit`, of all journals, those of a topic, or one of them."""
        if id is not None and topic is None:
            raise ConfigurationError("An id names a journal only within a topic.", hint="Add --topic.")
        journal = self.settings.journal
        return Audit(
            StoredRows(journal.store_url(self.settings.database)),
            self.settings.kafka.properties,
            journal.segment_size,
            (topic,) if topic is not None else self.journal_topics(),
            on_finding,
            id,
            self.settings.pipeline.kafka_java.properties,
        )

    def run_audit(
        self,
        *,
        stop: threading.Event,
        on_finding: Callable[[AuditFinding], None],
        topic: str | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        """Runs the job `audit` to its end."""
        audit = self.audit(on_finding, topic=topic, id=id)
        guard = TopicGuard(topic_look_up(audit.properties), self.journal_store.incarnation, time.monotonic)
        for each in audit.topics:
            guard.require(each)  # else every journal would differ
        return audit.run(self.spark_choice, stop)

    def migration(self, topic: str, to: str | None = None, *, database: Database | None = None) -> Migration:
        """The copy of a topic's later generations into one Kafka topic."""
        stored = database or self.database
        return Migration(
            topic,
            to,
            generations=SqlTopicGenerations(stored),
            pointers=SqlPointers(stored),
            properties=self.settings.kafka.properties,
            partitioner=Partitioner(self.settings.topic(topic).partitioner),
        )

    def migrate_topic(
        self,
        topic: str,
        *,
        to: str | None = None,
        once: bool = True,
        stop: threading.Event | None = None,
        reset: bool = False,
    ) -> dict[str, int]:
        """Copies in this process; see `migrate_here`."""
        return migrate_here(self.migration(topic, to), once=once, stop=stop, reset=reset)

    def run_migrate(
        self,
        topic: str,
        *,
        to: str | None = None,
        once: bool,
        stop: threading.Event,
        listener: Listener = NULL_LISTENER,
    ) -> dict[str, Any]:
        """The job `migrate`."""
        with closing(self.relay.open_database("inorder topics")) as database:
            migration = self.migration(topic, to, database=database)
            return run_migrate(migration, self.spark_engine, once=once, stop=stop, listener=listener)


def _user() -> str:
    """Who runs this process; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
