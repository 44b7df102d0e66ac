"""Settings that are valid alone and wrong together; each sentence names both keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from inorder.model.errors import ConfigurationError
from inorder.model.names import DELETED_COLUMN, RESERVED_COLUMNS
from inorder.settings.journal import JournalSettings, cassandra_options
from inorder.settings.pipeline import PipelineSettings, UpsertSettings
from inorder.settings.relay import MARGIN_PARTS, LeaseSettings, RelaySettings
from inorder.settings.section import SecretUrl
from inorder.settings.servers import Property
from inorder.settings.sources import key_text
from inorder.settings.web import WebSettings

if TYPE_CHECKING:
    from inorder.settings.root import Settings

_FALSE = ("false", "0", "no", "f")
_IN_FLIGHT_LIMIT = 5
# With any of these the client would give up a record, and a later one of its key would overtake it.
_LOSSY_PROPERTIES = (
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "message.send.max.retries",
    "message.timeout.ms",
    "retries",
)


def find_contradictions(settings: Settings) -> Iterator[str]:
    """A sentence for each pair of settings that cannot both hold."""
    yield from _against_delivery(settings)
    yield from _against_at_least_once(settings)
    yield from _against_layout(settings)
    yield from _against_topic_lock(settings.relay)
    yield from _against_polling(settings.relay)
    yield from _against_lease(settings.relay.lease)
    yield from _against_database(settings)
    yield from _batches(settings)
    yield from _sizes(settings)
    yield from _pipeline(settings)
    yield from _journal(settings.journal)
    yield from _web(settings.web)
    if settings.observe.traces and settings.relay.layout == "deimos":
        yield "observe.traces = true needs headers, and relay.layout = 'deimos' has no column for them."
    if settings.relay.leadership == "redis" and settings.redis.url is None:
        yield "relay.leadership = 'redis' needs redis.url, which is not set."


def _web(web: WebSettings) -> Iterator[str]:
    if not web.is_loopback and not web.authenticates:
        yield (
            f"web.listen = {web.listen!r} can be reached from other machines, and there is no authentication; set "
            "web.token, or web.trusted_header behind a proxy that authenticates users."
        )
    if web.token is not None and web.token == web.read_token:
        yield "web.token and web.read_token are the same; readers could act."
    if web.acting_users and not web.trusted_header:
        yield "web.acting_users names users of web.trusted_header, which is not set."


def _against_layout(settings: Settings) -> Iterator[str]:
    relay = settings.relay
    if relay.layout == "debezium" and relay.strategy == "mark-purge":
        yield (
            "relay.layout = 'debezium' has no column for the leader id that relay.strategy = 'mark-purge' writes; "
            "use relay.strategy = 'drain'."
        )
    if relay.retention_days is None:
        return
    if relay.layout != "native":
        yield f"relay.retention_days = {relay.retention_days} needs relay.layout = 'native', not {relay.layout!r}."
    url = settings.database.url
    if url is not None and not url.get_secret_value().startswith("postgres"):
        yield f"relay.retention_days = {relay.retention_days} needs PostgreSQL in database.url."


def _against_topic_lock(relay: RelaySettings) -> Iterator[str]:
    locks = relay.strategy == "topic-lock"
    if locks != (relay.layout == "deimos"):
        yield (
            f"relay.strategy = {relay.strategy!r} contradicts relay.layout = {relay.layout!r}: "
            "the strategy 'topic-lock' and the layout 'deimos' need each other."
        )
    if locks and relay.delivery != "at-least-once":
        yield (
            f"relay.delivery = {relay.delivery!r} contradicts relay.strategy = 'topic-lock', "
            "which delivers at least once."
        )
    if locks and relay.shards != 1:
        yield (
            f"relay.shards = {relay.shards} contradicts relay.strategy = 'topic-lock', which shares topics; "
            "set relay.topic_lock.workers to work on several at once."
        )


def _against_delivery(settings: Settings) -> Iterator[str]:
    delivery = f"relay.delivery = {settings.relay.delivery!r}"
    yield from _against_order("kafka", settings.kafka.properties, delivery)
    for name, topic in settings.topics.items():
        place = key_text(("topics", name, "kafka"))
        yield from _against_order(place, topic.kafka.properties, "the order of each key, which every backend keeps")


def _against_order(place: str, properties: Mapping[str, Property], promise: str) -> Iterator[str]:
    idempotence = properties.get("enable.idempotence", True)
    if str(idempotence).lower() in _FALSE:
        yield f'{place}."enable.idempotence" = {idempotence!r} contradicts {promise}; leave the property out.'
    for name in ("acks", "request.required.acks"):
        acks = properties.get(name, "all")
        if str(acks).lower() not in ("all", "-1"):
            yield f'{place}."{name}" = {acks!r} contradicts {promise}, which needs acks=all; leave it out.'
    in_flight = properties.get("max.in.flight.requests.per.connection", 1)
    if str(in_flight).isdigit() and int(in_flight) > _IN_FLIGHT_LIMIT:
        yield (
            f'{place}."max.in.flight.requests.per.connection" = {in_flight!r} contradicts {promise}, '
            f"which allows at most {_IN_FLIGHT_LIMIT}."
        )


def _against_at_least_once(settings: Settings) -> Iterator[str]:
    if settings.relay.delivery != "at-least-once":
        return
    for name in _LOSSY_PROPERTIES:
        if (value := settings.kafka.properties.get(name)) is not None:
            yield (
                f"kafka.\"{name}\" = {value!r} contradicts relay.delivery = 'at-least-once', "
                "which never gives up a record; leave it out."
            )


def _batches(settings: Settings) -> Iterator[str]:
    relay = settings.relay
    if relay.strategy == "mark-purge" and relay.batch_size > relay.in_flight_limit:
        yield (
            f"relay.batch_size = {relay.batch_size} is larger than relay.in_flight_limit = {relay.in_flight_limit}; "
            "no batch could be in flight as a whole."
        )
    queue = settings.kafka.properties.get("queue.buffering.max.messages")
    if queue is not None and str(queue).isdigit() and 0 < int(queue) < relay.batch_size:
        yield (
            f'relay.batch_size = {relay.batch_size} is larger than kafka."queue.buffering.max.messages" = {queue}; '
            "the client's queue could not hold a batch."
        )


def _sizes(settings: Settings) -> Iterator[str]:
    limit = settings.kafka.properties.get("message.max.bytes")
    largest = settings.outbox.max_value_bytes
    if limit is not None and str(limit).isdigit() and int(limit) < largest:
        yield (
            f'outbox.max_value_bytes = {largest} is above kafka."message.max.bytes" = {limit}; '
            "the client would refuse what the outbox accepts."
        )


def _pipeline(settings: Settings) -> Iterator[str]:
    pipeline = settings.pipeline
    if pipeline.tables and "upsert" in pipeline.model_fields_set:
        yield (
            "pipeline.upsert and pipeline.tables are both given; "
            "write the table of pipeline.upsert as one more of pipeline.tables."
        )
    for place, target in _places(pipeline):
        yield from _columns(place, target)
        if target.table == settings.relay.table:
            yield (
                f"{place}.table and relay.table are both {target.table!r}; the pipeline cannot write into the outbox."
            )
    yield from _delta(pipeline)
    for name in ("topic", "table", "target"):
        for value, count in Counter(getattr(target, name) for target in pipeline.tables).items():
            if count > 1 and value is not None:
                yield f"pipeline.tables name the {name} {value!r} {count} times; a {name} belongs to one of them."


def _delta(pipeline: PipelineSettings) -> Iterator[str]:
    found = [(place, target) for place, target in _places(pipeline) if target.target is not None]
    if not found:
        return
    if pipeline.engine != "micro-batch":
        yield (
            f"{found[0][0]}.target = {found[0][1].target!r} needs pipeline.engine = 'micro-batch', not "
            f"{pipeline.engine!r}: a task cannot commit a part of a Delta table."
        )
    if len(found) < len(pipeline.targets):
        yield (
            f"{found[0][0]}.target is a Delta table, and other tables of the job are in database.url; "
            "give each kind a settings file of its own."
        )
    for place, target in found:
        if DELETED_COLUMN in (*target.key, *target.fields):
            yield f"{place} names {DELETED_COLUMN!r}, a column that inorder itself uses in Delta tables."


def _places(pipeline: PipelineSettings) -> Iterator[tuple[str, UpsertSettings]]:
    yield from ((f"pipeline.tables.{index}", target) for index, target in enumerate(pipeline.tables))
    if not pipeline.tables:
        yield "pipeline.upsert", pipeline.upsert


def _columns(place: str, target: UpsertSettings) -> Iterator[str]:
    if len(target.key_type) not in (1, len(target.key)):
        yield (
            f"{place}.key names {len(target.key)} columns and {place}.key_type {len(target.key_type)} types; "
            "name one type for each column, or one for all."
        )
    for name in target.key:
        if name in target.fields or target.key.count(name) > 1:
            yield (
                f"{place}.key = {name!r} is also listed in {place}.fields, or twice; "
                "the key is a column of its own, so leave it out of the fields."
            )
    for name in RESERVED_COLUMNS:
        if name in (*target.key, *target.fields):
            which = "key" if name in target.key else "fields"
            yield (
                f"{place}.{which} names {name!r}, a column that inorder itself uses in "
                f"{place}.table = {target.table!r}; rename the field."
            )
    if target.mode == "insert" and target.deletes == "tombstone" and "deletes" in target.model_fields_set:
        yield f"{place}.deletes = 'tombstone' contradicts {place}.mode = 'insert', which never deletes a row."


def _against_polling(relay: RelaySettings) -> Iterator[str]:
    if relay.strategy != "polling":
        if relay.layout == "trendyol" and relay.strategy == "mark-purge":
            yield (
                "relay.layout = 'trendyol' has no column for the leader id that relay.strategy = 'mark-purge' writes; "
                "use relay.strategy = 'polling' or 'drain'."
            )
        return
    if relay.layout != "trendyol":
        yield (
            f"relay.strategy = 'polling' contradicts relay.layout = {relay.layout!r}: "
            "it needs the offset and the missing events of the layout 'trendyol'."
        )
    if relay.shards != 1:
        yield (
            f"relay.shards = {relay.shards} contradicts relay.strategy = 'polling', "
            "which has one offset and so one shard."
        )
    yield from _tables(relay)


def _tables(relay: RelaySettings) -> Iterator[str]:
    schema = relay.table.rpartition(".")[0]
    names = {"relay.table": relay.table} | {
        f"relay.polling.{field}": getattr(relay.polling, field)
        for field in ("missing_table", "exceeded_table", "offset_table")
    }
    for (one, name), (other, same) in combinations(names.items(), 2):
        if _whole(name, schema) == _whole(same, schema):
            yield f"{one} and {other} are both {same!r}; each needs a table of its own."


def _whole(table: str, schema: str) -> tuple[str, str]:
    before, _, name = table.rpartition(".")
    return before or schema, name


def _against_lease(lease: LeaseSettings) -> Iterator[str]:
    # An owner must be able to extend its lease, and to stop, before it ends.
    usable = lease.lifetime_ms - lease.margin_ms
    if lease.race_interval_ms >= usable:
        yield (
            f"relay.lease.lifetime_ms = {lease.lifetime_ms} is too short for "
            f"relay.lease.race_interval_ms = {lease.race_interval_ms}: an owner stops a {MARGIN_PARTS}th of the "
            f"lifetime before its end, so it must extend its lease more often than every {usable:.0f} ms."
        )
    if lease.check_interval_ms > lease.margin_ms:
        yield (
            f"relay.lease.check_interval_ms = {lease.check_interval_ms} is longer than a {MARGIN_PARTS}th of "
            f"relay.lease.lifetime_ms = {lease.lifetime_ms}: an owner would notice too late that it must stop."
        )


def _against_database(settings: Settings) -> Iterator[str]:
    database, strategy = settings.database, settings.relay.strategy
    scheme = _scheme(database.url)
    if database.read_only_url is not None:
        if strategy != "polling":
            yield f"database.read_only_url is of no use with relay.strategy = {strategy!r}: only 'polling' uses it."
        if scheme != _scheme(database.read_only_url):
            yield (
                f"database.read_only_url ({_scheme(database.read_only_url)}) and database.url ({scheme}) "
                "must be the same kind of database."
            )
    if database.credentials_file is not None and scheme in ("not set", "sqlite"):
        yield f"database.credentials_file needs the URL of a server in database.url, which is {scheme}."


def _scheme(url: SecretUrl | None) -> str:
    return "not set" if url is None else url.get_secret_value().partition("://")[0]


def _journal(journal: JournalSettings) -> Iterator[str]:
    try:
        cassandra_options(journal.cassandra.added_to(_cassandra_url(journal)))
    except ConfigurationError as error:
        yield f"{error.message} {error.hint}"
    topic = journal.replicated_topic
    for prefix in journal.topic_prefixes:
        if topic.startswith(prefix):
            yield (
                f"journal.replicated_topic = {topic!r} begins with {prefix!r} of journal.topic_prefixes, so it would "
                "itself be treated as a journal topic; give it another name."
            )
    wait = journal.wait_for_store_ms
    if wait and not topic:
        yield f"journal.wait_for_store_ms = {wait} needs journal.replicated_topic, which is empty."
    if wait >= journal.timeout_seconds * 1000:
        yield (
            f"journal.wait_for_store_ms = {wait} leaves a read no time for Kafka within "
            f"journal.timeout_seconds = {journal.timeout_seconds}."
        )


def _cassandra_url(journal: JournalSettings) -> str:
    """The store's URL if it is of Cassandra; options without such a store are checked all the same."""
    url = journal.store.get_secret_value() if journal.store else ""
    return url if url.startswith("cassandra:") else "cassandra://"
