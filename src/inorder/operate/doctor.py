"""Checks the machine and the servers against what inorder needs; changes nothing.

Checks that differ between databases are in `doctor_databases`.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from inorder.database.credentials import parse_url
from inorder.database.database import Dialect, Transaction, dialect_of, open_database, statements_of
from inorder.database.primary import each_host
from inorder.database.schema_plan import catalogue_of
from inorder.embedded.folders import cache_folder
from inorder.embedded.jars import find_java, java_version
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import COMPACTED, Cluster, ClusterInfo
from inorder.kafka.fenced_producer import DEFAULTS
from inorder.model.errors import AuthenticationError, ConfigurationError, InorderError, UnreachableError
from inorder.model.names import RESERVED_COLUMNS
from inorder.model.secrets import mask_url
from inorder.operate.roles import outbox_rights
from inorder.outbox.layouts import layout, statements
from inorder.outbox.stores.table import require_outbox_table
from inorder.pipeline.decoding import NO_RECORD_KEY
from inorder.pipeline.job import table_mappings
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.status import partition_progress
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.stores.ports import LetterFilter
from inorder.pipeline.stores.table import table_sql
from inorder.relay.marker import MARKER_TOPIC_BYTES
from inorder.relay.reshard import refuse_other
from inorder.relay.stores import kafka_lease
from inorder.relay.stores.kafka_log import marker_topic
from inorder.relay.stores.polling import SqlPollingStore
from inorder.relay.stores.ports import Setup
from inorder.relay.stores.registry import read_registration
from inorder.settings import Settings
from inorder.settings.journal import cassandra_options
from inorder.settings.relay import RelaySettings

__all__ = ["Check", "examine", "exit_code"]


def examine(settings: Settings) -> list[Check]:
    """Every check, each bounded in time; none of them raises."""
    return [
        *examine_machine(),
        *examine_database(settings),
        *examine_kafka(settings),
        *examine_redis(settings),
        *examine_transport(settings),
        *examine_journal(settings),
    ]


Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, its state, and what to do where that is not ok."""

    name: str
    status: Status
    detail: str
    hint: str = ""
    unreachable: bool = False


def ok(name: str, detail: str) -> Check:
    return Check(name, "ok", detail)


def warn(name: str, detail: str, hint: str) -> Check:
    """Worth knowing; stops nothing."""
    return Check(name, "warn", detail, hint)


def fail(name: str, detail: str, hint: str) -> Check:
    """inorder cannot work with this."""
    return Check(name, "fail", detail, hint)


def unreachable(name: str, detail: str, hint: str) -> Check:
    """No server answered."""
    return Check(name, "fail", detail, hint, unreachable=True)


def of_error(name: str, error: InorderError) -> Check:
    return Check(name, "fail", error.message, error.hint, isinstance(error, UnreachableError))


def exit_code(checks: Iterable[Check]) -> int:
    """4 where something is unreachable, 3 where something is wrong, else 0."""
    failed = [check for check in checks if check.status == "fail"]
    if any(check.unreachable for check in failed):
        return UnreachableError.exit_code
    return ConfigurationError.exit_code if failed else 0


# The machine: Python, Java, disk.

OLDEST_PYTHON = (3, 11)
GIGABYTE = 1024**3

# Jars and binaries of all embedded servers take about one; the rest is for their data.
WANTED_FREE_BYTES = 3 * GIGABYTE
LEAST_FREE_BYTES = GIGABYTE // 2


def examine_machine() -> list[Check]:
    """What the machine itself must have."""
    return [_python(), _java(), _disk(cache_folder())]


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return fail("python", f"{version} at {sys.executable}", "Use Python 3.11 or newer.")
    return ok("python", f"{version} at {sys.executable}")


def _java() -> Check:
    try:
        java = find_java()
    except InorderError as error:
        return of_error("java", error)
    return ok("java", f"{java_version(java)} at {java}")


def _disk(folder: Path) -> Check:
    # The folder is created with the first download; its nearest parent is on the same disk.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / GIGABYTE:.1f} GB free in {folder}"
    hint = "Free some space, or set INORDER_CACHE to a folder on another disk."
    if free < LEAST_FREE_BYTES:
        return unreachable("disk", detail, hint)
    return ok("disk", detail) if free >= WANTED_FREE_BYTES else warn("disk", detail, hint)


# The database of the outbox.

_START = "Start the database, or correct database.url; `inorder up` starts one here."


def examine_database(settings: Settings) -> list[Check]:
    """What the relay and the pipeline need from the database."""
    found: list[Check] = []
    try:
        url = mask_url(settings.database.require_url())
        # What was found before an error stays in the list.
        found.extend(_checks(url, settings))
        if all(check.status != "fail" for check in found):
            found.extend(examine_polling(settings))
            found.extend(examine_order(settings))
            found.extend(examine_targets(settings))
    except AuthenticationError as error:
        found.append(unreachable("database", f"{url}: {error.message}", error.hint))
    except UnreachableError as error:
        found.append(unreachable("database", f"{url}: {error.message}", _START))
    except InorderError as error:
        found.append(of_error("database", error))
    return found


def _checks(shown: str, settings: Settings) -> Iterator[Check]:
    # Imported here, because the drivers are extras.
    match dialect_of(settings.database.require_url()):
        case "postgres":
            from inorder.operate.doctor_databases import examine_postgres

            return examine_postgres(shown, settings)
        case "mysql":
            from inorder.operate.doctor_databases import examine_mysql

            return examine_mysql(shown, settings)
        case "sqlite":
            from inorder.operate.doctor_databases import examine_sqlite

            return examine_sqlite(shown, settings)


# Kafka: reachable, sessions, the marker topic, the pipeline's topic, limits that must fit together.

# A record is its value and some more: key, headers, framing.
FRAMING_BYTES = 1024
LARGE_SEGMENT_BYTES = 128 * 1024 * 1024
"""Of a compacted topic: as much as a new broker or a careless reader may have to read."""


def examine_kafka(settings: Settings) -> list[Check]:
    """What the relay and the pipeline need from Kafka."""
    found: list[Check] = []
    try:
        cluster = Cluster(settings.kafka.properties)
        found.extend(_kafka_checks(cluster, settings))
    except InorderError as error:
        found.append(of_error("kafka", error))
    return found


def _kafka_checks(cluster: Cluster, settings: Settings) -> Iterator[Check]:
    info = cluster.info()
    yield ok("kafka", f"cluster {info.cluster_id}, {len(info.brokers)} broker(s): {', '.join(info.brokers)}")
    yield _transactions(cluster, info, {**DEFAULTS, **settings.kafka.properties}["transaction.timeout.ms"])
    yield from _late_requests(cluster, info)
    if settings.relay.leadership == "kafka":
        session = {**kafka_lease.DEFAULTS, **settings.kafka.properties}["session.timeout.ms"]
        yield _sessions(cluster, info, int(str(session)))
    yield _marker(cluster, info, marker_topic(settings.relay.group))
    for target in settings.pipeline.targets:
        yield from _topic(cluster, settings, target.topic)


def _transactions(cluster: Cluster, info: ClusterInfo, wanted: object) -> Check:
    name = "transaction.max.timeout.ms"
    longest = cluster.broker_settings(info.broker_ids[0]).get(name)
    if longest is None:
        return warn("kafka transactions", f"the broker does not report {name}", "Nothing to do if the relay starts.")
    if int(longest) < int(str(wanted)):
        # The broker would refuse the relay's producer.
        hint = f'Set {name} of the brokers to {wanted} or more, or kafka."transaction.timeout.ms" lower.'
        return fail("kafka transactions", f"{name} = {longest}", hint)
    return ok("kafka transactions", f"{name} = {longest}")


def _late_requests(cluster: Cluster, info: ClusterInfo) -> Iterator[Check]:
    """Whether brokers refuse requests of a transaction that arrive after its end; see `kafka/fenced_producer.py`."""
    name = "transaction.partition.verification.enable"
    found = {broker: cluster.broker_settings(broker).get(name) for broker in info.broker_ids}
    if off := [str(broker) for broker, value in found.items() if value == "false"]:
        hint = f"Set {name}=true: a record that arrives late could be published twice, or hold readers up."
        yield warn("late requests", f"{name} = false on broker {', '.join(off)}", hint)
    elif None in found.values():
        hint = "Nothing to do if the brokers have Kafka 3.6 or later; earlier ones do not refuse late records."
        yield warn("late requests", f"the broker does not report {name}", hint)
    else:
        yield ok("late requests", f"{name} = true")


def _sessions(cluster: Cluster, info: ClusterInfo, wanted: int) -> Check:
    """Whether the broker allows the session timeout of the election."""
    names = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    reported = cluster.broker_settings(info.broker_ids[0])
    least, most = (reported.get(name) for name in names)
    if least is None or most is None:
        return warn(
            "leadership", f"the broker does not report {' and '.join(names)}", "Nothing to do if a relay leads."
        )
    detail = f"sessions of {wanted} ms; the broker allows {least} to {most}"
    if int(least) <= wanted <= int(most):
        return ok("leadership", detail)
    return fail("leadership", detail, 'Set kafka."session.timeout.ms" between them, or use another relay.leadership.')


def _marker(cluster: Cluster, info: ClusterInfo, topic: str) -> Check:
    name, partitions = "marker topic", cluster.partitions(topic)
    if partitions is None:
        return ok(name, f"{topic} is created at the first start of the relay")
    config, replicas = cluster.topic_settings(topic), cluster.replicas(topic)
    policy = config.get("cleanup.policy", "")
    if policy != "compact":
        hint = f"Set cleanup.policy=compact on {topic}, or Kafka deletes markers that are needed."
        return fail(name, f"{topic} has cleanup.policy={policy}", hint)
    in_sync, usual = int(config.get("min.insync.replicas", 0)), cluster.broker_settings(info.broker_ids[0])
    detail = f"{topic}: {partitions} partition(s), compacted, {replicas} replica(s), min.insync.replicas = {in_sync}"
    if replicas < in_sync:
        return fail(name, detail, f"Give {topic} more replicas: the brokers refuse every marker.")
    if replicas < int(usual.get("default.replication.factor", 1)):
        hint = (
            f"The cluster's default.replication.factor is {usual['default.replication.factor']}: give {topic} as many."
        )
        return warn(name, detail, f"{hint} If it is lost, rows that are not purged yet are published again.")
    if replicas > 1 == in_sync:
        hint = f"Set min.insync.replicas=2 on {topic} and your topics: a broker that fails may lose what it alone has."
        return warn(name, detail, hint)
    if int(config.get("max.message.bytes", MARKER_TOPIC_BYTES)) < MARKER_TOPIC_BYTES:
        hint = f"Raise max.message.bytes of {topic} to {MARKER_TOPIC_BYTES} or more: the relay waits at larger markers."
        return warn(name, f"{detail}, max.message.bytes = {config['max.message.bytes']}", hint)
    if int(config.get("segment.bytes", 0)) > LARGE_SEGMENT_BYTES:
        hint = f"Set segment.bytes={COMPACTED['segment.bytes']} on {topic}: Kafka does not compact the newest segment."
        return warn(name, f"{detail}, segment.bytes = {config['segment.bytes']}", hint)
    return ok(name, detail)


def _topic(cluster: Cluster, settings: Settings, topic: str) -> Iterator[Check]:
    partitions = cluster.partitions(topic)
    if partitions is None:
        hint = "Needed by the pipeline only: create it with the number of partitions you want."
        yield warn("pipeline topic", f"{topic} does not exist", hint)
        return
    yield ok("pipeline topic", f"{topic}: {partitions} partition(s)")
    yield _largest(topic, int(cluster.topic_settings(topic)["max.message.bytes"]), settings.outbox.max_value_bytes)


def _largest(topic: str, limit: int, value: int) -> Check:
    detail = f"max.message.bytes = {limit} on {topic}, outbox.max_value_bytes = {value}"
    if limit >= value + FRAMING_BYTES:
        return ok("message size", detail)
    hint = "Raise the topic's limit or lower outbox.max_value_bytes: the broker refuses what the outbox accepted."
    return warn("message size", detail, hint)


# Redis: reachable, where the relay's leadership needs it.


def examine_redis(settings: Settings) -> list[Check]:
    """Whether the lease can be read; nothing where it is kept elsewhere."""
    if settings.relay.leadership != "redis":
        return []
    try:
        # Here, because the package redis is an extra.
        from inorder.relay.stores.redis_lease import holder_of

        holder = holder_of(settings.redis.require_url(), settings.relay.lease_name(0))
    except InorderError as error:
        return [of_error("leadership", error)]
    return [ok("leadership", f"{settings.redis.url} answers; {holder or 'no instance'} holds the lease")]


# The store of journals: reachable, with its tables, where journals are used.


def examine_journal(settings: Settings) -> list[Check]:
    """Whether the store can be read; nothing where the settings have no [journal]."""
    if "journal" not in settings.model_fields_set:
        return []
    topic = settings.journal.topic_prefixes[0] if settings.journal.topic_prefixes else "journal"
    try:
        with closing(open_journal_store(settings.journal.store_url(settings.database))) as store:
            store.offset(topic, 0)
    except InorderError as error:
        return [of_error("journal store", error)]
    return [ok("journal store", "it answers, and its tables exist")]


# What the strategy `polling` needs beside its events: three tables, an offset, and a replica where one is set.


def examine_polling(settings: Settings) -> Iterator[Check]:
    """Nothing where another strategy is set."""
    if settings.relay.strategy != "polling":
        return
    yield _found("polling tables", _tables, settings)
    if settings.database.read_only_url is not None:
        yield _found("read-only database", _replica, settings)


def _found(name: str, look: Callable[[Settings], str], settings: Settings) -> Check:
    try:
        return ok(name, look(settings))
    except InorderError as error:
        return of_error(name, error)


def _tables(settings: Settings) -> str:
    relay = settings.relay
    database = open_database(settings.database.require_url(), "inorder doctor")
    with closing(SqlPollingStore(database, relay.table, relay.polling.side_tables)) as store:
        store.check()
        return f"all exist, and the offset is {store.offset()}"


def _replica(settings: Settings) -> str:
    relay = settings.relay
    with closing(open_database(settings.database.reading_url(), "inorder doctor", is_primary=False)) as database:
        require_outbox_table(database, relay.table, relay.layout)
    return f"{relay.table} is read there"


# Columns of the tables that the job `upsert` writes.


def examine_targets(settings: Settings) -> Iterator[Check]:
    """A failure for each table that exists and lacks columns, with the statements that add them.

    `inorder schema install` creates tables that are missing and changes none that is yours.
    """
    with closing(open_database(settings.database.require_url(), "inorder doctor")) as database:
        catalogue = catalogue_of(database)
        for mapping in table_mappings(settings):
            if mapping.target:
                continue  # the job compares the columns of a Delta table when it starts
            present = {name.lower() for name in catalogue.columns(mapping.table)}
            wanted = (*mapping.key_names, *mapping.columns, *RESERVED_COLUMNS)
            missing = [name for name in wanted if name.lower() not in present]
            if present and missing:
                kinds = dict((*mapping.key_columns, *mapping.fields))
                adding = table_sql(database.dialect, mapping).add_column
                added = [adding(name, kinds[name]).strip() for name in missing if name in mapping.columns]
                hint = f"Run {' '.join(added)}" if len(added) == len(missing) else _NO_TARGET
                yield fail("pipeline columns", f"{mapping.table} lacks {', '.join(missing)}", hint)


_NO_TARGET = "Compare it with `inorder schema sql --layout table`, or name another table in pipeline.upsert.table."


# Records of the job `upsert` that nothing orders.


def examine_order(settings: Settings) -> Iterator[Check]:
    """A warning for each table that met records without a Kafka key, or one key in several partitions."""
    with closing(open_database(settings.database.require_url(), "inorder doctor")) as database:
        for mapping in table_mappings(settings):
            if not (rows := partition_progress(database, mapping.pipeline)):
                continue
            wanted = LetterFilter(pipeline=mapping.pipeline, code=NO_RECORD_KEY)
            keyless = SqlDeadLetters(database).counts(wanted).get(NO_RECORD_KEY, 0)
            yield from order_checks(mapping, sum(row.stale for row in rows), keyless)


def order_checks(mapping: TableMapping, stale: int, keyless: int) -> Iterator[Check]:
    """By how many records were stale, and how many were rejected for lack of a key."""
    name = "order of records"
    if keyless:
        hint = (
            "Their producer must send the key of the row as the Kafka key. `inorder dead-letters list --code"
            f' {NO_RECORD_KEY}` shows them; `keyless = "apply"` is for topics that are partitioned by other means.'
        )
        yield warn(name, f"{mapping.topic}: {keyless} records without a Kafka key were set aside", hint)
    if stale:
        hint = (
            "The log names their keys (pipeline.records_not_applied). Unless pointers were lost and the topic was"
            " replayed, a producer sends records of one key to several partitions; `inorder key follow KEY"
            " --all-partitions` shows them."
        )
        yield warn(name, f"{mapping.topic}: {stale} records were stale and left out of {mapping.table}", hint)
    if not keyless and not stale:
        yield ok(name, f"{mapping.topic}: every record was newer than its row")


# Checks of an outbox table that are the same in every database; `doctor_databases` reads the table.

REGISTRY = "inorder_relay"
OWN_TABLES = ("inorder_exceeded", "inorder_exceeded_action", "inorder_lease", "inorder_member", REGISTRY)
PIPELINE_TABLES = ("inorder_pointer", "inorder_dead_letter", "inorder_tombstone")

_RIGHTS: Final = ("INSERT", "SELECT", "DELETE", "UPDATE")
_COLUMN: Final = re.compile(r'^\s+["`]?(\w+)["`]? ', re.MULTILINE)


def expected_columns(layout_name: str, dialect: str) -> frozenset[str]:
    """The columns in the DDL of a layout."""
    ddl = statements(layout_name, dialect)["install"]
    return frozenset(_COLUMN.findall(ddl[ddl.index("(") : ddl.index("\n)")]))


def needed_columns(relay: RelaySettings, dialect: str) -> frozenset[str]:
    """The columns that the relay needs: only `mark-purge` marks."""
    marks = layout(relay.layout, dialect).leader_id
    spared = {marks} if marks and relay.strategy != "mark-purge" else set()
    return expected_columns(relay.layout, dialect) - spared


def missing_table(relay: RelaySettings, hint: str = "") -> Check:
    """The table does not exist; `hint` where this user may not create it."""
    install = f"Run `inorder schema install --layout {relay.layout}`."
    return fail("outbox table", f"{relay.table} does not exist", hint or install)


def columns(relay: RelaySettings, dialect: str, found: Collection[str]) -> Check:
    """Whether the table has the columns of its layout."""
    missing = sorted(needed_columns(relay, dialect) - set(found))
    if missing:
        detail = f"{relay.table} lacks {', '.join(missing)} of the layout {relay.layout}"
        return fail("outbox table", detail, _remedy(relay, dialect, missing))
    return ok("outbox table", f"{relay.table} has the {relay.layout} columns")


def _remedy(relay: RelaySettings, dialect: str, missing: list[str]) -> str:
    install = f"`inorder schema install --layout {relay.layout}`"
    added = statements(relay.layout, dialect).get("added", "").partition(" ")[0]
    if missing != [added]:
        return f"Set relay.layout to the layout that the table has, or rename the table and run {install}."
    if relay.layout == "debezium":
        return (
            f"Let Debezium finish and delete its rows, then run {install}: it adds the column, which orders the rows."
        )
    return f"Run {install}: it adds the column."


def index(relay: RelaySettings, dialect: str, *, is_there: bool) -> Check:
    """Whether rows are found by id."""
    id = layout(relay.layout, dialect).id
    if is_there:
        return ok("outbox index", f"unique index on {id}")
    hint = f"Run ALTER TABLE {relay.table} ADD UNIQUE ({id}); without it each batch reads the whole table."
    return fail("outbox index", f"{relay.table} has no unique index on {id} alone", hint)


def rights(relay: RelaySettings, user: str, needed: Sequence[str], missing: Collection[str]) -> Check:
    """Whether the user may do what the relay and publishers do; `missing` are rights that it lacks."""
    lacking = ", ".join(right for right in needed if right in missing)
    if lacking:
        hint = f"Run GRANT {lacking} ON {relay.table} TO {user}."
        return fail("outbox rights", f"{user} lacks {lacking} on {relay.table}", hint)
    return ok("outbox rights", f"{user} may {', '.join(needed[:-1])} and {needed[-1]}")


def needed_rights(relay: RelaySettings, dialect: str) -> tuple[str, ...]:
    """What publishers and the relay need on the outbox table; `roles` has the reasons."""
    found = outbox_rights(relay, dialect)
    return tuple(right for right in _RIGHTS if right in (*found["publisher"], *found["relay"]))


def registration(relay: RelaySettings, transaction: Transaction, dialect: Dialect, *, is_there: bool) -> Check:
    """Whether the settings are those that are registered for this table."""
    found = (
        read_registration(transaction, statements_of("inorder.relay", dialect, "registry.sql")["read"], relay.table)
        if is_there
        else None
    )
    wanted = Setup(relay.group, relay.strategy, relay.shards)
    if found is None:
        return ok("registration", f"none yet; the first relay that runs registers {wanted}")
    try:
        refuse_other(found, wanted)
    except InorderError as error:
        return fail("registration", error.message, error.hint)
    return ok("registration", f"{wanted}, as registered in {REGISTRY}")


def pipeline_tables(settings: Settings, has: Callable[[str], bool]) -> Iterator[Check]:
    """The tables of the job `upsert`, in whichever database."""
    in_database = (target.table for target in settings.pipeline.targets if target.target is None)
    for table in (*PIPELINE_TABLES, *in_database):
        if has(table):
            yield ok("pipeline table", f"{table} exists")
        else:
            hint = "Needed by the pipeline only: run `inorder schema install --layout table`."
            yield warn("pipeline table", f"{table} does not exist", hint)


# What is encrypted on the way, by the settings alone.


def examine_transport(settings: Settings) -> Iterator[Check]:
    """Says for each server whether the connection is encrypted and its certificate verified; connects nowhere."""
    kafka, database, journal = settings.kafka, settings.database, settings.journal
    yield _transport(
        "kafka", [_host(each) for each in kafka.bootstrap_servers.split(",")], _kafka_flaw(kafka.properties)
    )
    for server, setting, url in (
        ("database", "database.url", database.url),
        ("read-only database", "database.read_only_url", database.read_only_url),
    ):
        if url is not None:
            yield from _database_transport(server, setting, url.get_secret_value())
    if journal.store is not None:
        store = journal.cassandra.added_to(journal.store.get_secret_value())
        judge = _cassandra_transport if store.startswith("cassandra:") else _database_transport
        yield from judge("journal store", "journal.store", store)
    if settings.relay.leadership == "redis" and settings.redis.url is not None:
        redis = parse_url(settings.redis.url.get_secret_value())
        if redis.drivername != "unix":
            yield _transport("redis", [redis.host or ""], _redis_flaw(redis.drivername, redis.query))


def _database_transport(server: str, setting: str, address: str) -> Iterator[Check]:
    urls = [parse_url(each) for each in each_host(address)]
    kind, query = urls[0].drivername, urls[0].query
    if kind == "sqlite":
        return
    # Drivers take a host of the query instead of that of the URL, and connect to a hostaddr whatever the host is.
    named = _listed(query.get("host")) or [unquote(url.host or "") for url in urls]
    flaw = _postgres_flaw(query, setting) if kind.startswith("postgresql") else _mysql_flaw(query, setting)
    yield _transport(server, [*map(_host, named), *map(_host, _listed(query.get("hostaddr")))], flaw)


def _listed(value: str | tuple[str, ...] | None) -> list[str]:
    several = (value,) if isinstance(value, str) else value or ()
    return [each for part in several for each in part.split(",")]


def _cassandra_transport(server: str, setting: str, address: str) -> Iterator[Check]:
    options, flaw = cassandra_options(address), None
    if not options.tls:
        flaw = "not encrypted", f"Set tls = true and tls_ca in [journal.cassandra], or in {setting}."
    elif not options.tls_check_hostname:
        flaw = "encrypted, but the names of the nodes are not verified", "Remove tls_check_hostname."
    hosts = urlsplit(address).netloc.rpartition("@")[2]
    yield _transport(server, [_host(each) for each in hosts.split(",")], flaw)


def _transport(server: str, hosts: Sequence[str], flaw: tuple[str, str] | None) -> Check:
    if flaw is None:
        return ok("transport", f"{server}: encrypted, and the certificate of the server is verified")
    what, remedy = flaw
    if all(map(_is_local, hosts)):
        return ok("transport", f"{server}: {what}; it is on this machine")
    return warn("transport", f"{server}: {what}", remedy)


def _host(server: str) -> str:
    """The host of an address with or without a protocol and a port.

    >>> [_host(each) for each in ("broker", "broker:9092", "SSL://broker:9092", "[::1]:9092", "::1", "/run/socket")]
    ['broker', 'broker', 'broker', '::1', '::1', '/run/socket']
    """
    address = server.strip().rpartition("://")[2]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _is_local(host: str) -> bool:
    """Whether it is this machine: a loopback address, a path of a socket, or nothing."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "@"))


def _kafka_flaw(properties: Mapping[str, object]) -> tuple[str, str] | None:
    if not str(properties.get("security.protocol", "plaintext")).lower().endswith("ssl"):
        return "not encrypted", 'Set kafka."security.protocol" to ssl or sasl_ssl, and kafka."ssl.ca.location".'
    verifies = str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "true"
    names = str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    if verifies and names:
        return None
    return "encrypted, but the broker's certificate is not verified", "Remove the properties that disable it."


def _postgres_flaw(query: Mapping[str, object], setting: str) -> tuple[str, str] | None:
    remedy = f"Add sslmode=verify-full and sslrootcert=FILE to {setting}."
    mode = str(query.get("sslmode", "prefer"))
    if mode in ("disable", "allow", "prefer"):
        return f"not encrypted, or only if the server wants it (sslmode={mode})", remedy
    return None if mode == "verify-full" else (f"encrypted, but not verified (sslmode={mode})", remedy)


def _mysql_flaw(query: Mapping[str, object], setting: str) -> tuple[str, str] | None:
    remedy = f"Add ssl_ca=FILE to {setting}."
    if "ssl_disabled" in query:
        return "not encrypted (ssl_disabled)", remedy
    if "ssl_ca" not in query and "ssl_capath" not in query:
        return "not encrypted, or not verified (there is no ssl_ca)", remedy
    if str(query.get("ssl_check_hostname", "true")).lower() != "true":
        return "encrypted, but the name of the server is not verified", "Remove ssl_check_hostname."
    return None


def _redis_flaw(scheme: str, query: Mapping[str, object]) -> tuple[str, str] | None:
    if scheme != "rediss":
        return "not encrypted", "Use rediss:// in redis.url, with ssl_ca_certs=FILE if its authority is your own."
    if str(query.get("ssl_cert_reqs", "required")).lower() != "required":
        return "encrypted, but not verified (ssl_cert_reqs)", "Remove ssl_cert_reqs from redis.url."
    return None
