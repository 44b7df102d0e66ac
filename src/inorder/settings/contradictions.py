"""Settings that are fine alone and wrong together; each refusal names both keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from inorder.settings.contradictions_of_journal import of_journal
from inorder.settings.contradictions_of_pipeline import of_pipeline
from inorder.settings.contradictions_of_polling import against_database, against_lease, against_polling
from inorder.settings.kafka import Property
from inorder.settings.relay import RelaySettings
from inorder.settings.tree import spelt

if TYPE_CHECKING:
    from inorder.settings.root import Settings

_FALSE = ("false", "0", "no", "f")
_IN_FLIGHT_LIMIT = 5
# With any of these the client would give a record up, and a later one of its key would pass it.
_GIVING_UP = (
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "message.send.max.retries",
    "message.timeout.ms",
    "retries",
)


def contradictions(settings: Settings) -> Iterator[str]:
    """A sentence for each pair of settings that cannot both hold."""
    yield from _against_delivery(settings)
    yield from _against_at_least_once(settings)
    yield from _against_layout(settings)
    yield from _against_topic_lock(settings.relay)
    yield from against_polling(settings.relay)
    yield from against_lease(settings.relay.lease)
    yield from against_database(settings)
    yield from _batches(settings)
    yield from _sizes(settings)
    yield from of_pipeline(settings)
    yield from of_journal(settings.journal)
    if settings.relay.leadership == "redis" and settings.redis.url is None:
        yield "relay.leadership = 'redis' needs redis.url, which is not set."


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
            "which delivers at-least-once."
        )
    if locks and relay.shards != 1:
        yield (
            f"relay.shards = {relay.shards} contradicts relay.strategy = 'topic-lock', which shares topics; "
            "relay.topic_lock.workers says how many of them are worked on at once."
        )


def _against_delivery(settings: Settings) -> Iterator[str]:
    delivery = f"relay.delivery = {settings.relay.delivery!r}"
    yield from _against_order("kafka", settings.kafka.properties, delivery)
    for name, topic in settings.topics.items():
        place = spelt(("topics", name, "kafka"))
        yield from _against_order(place, topic.kafka.properties, "the order of keys, which every backend keeps")


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
            f"which allows {_IN_FLIGHT_LIMIT} at most."
        )


def _against_at_least_once(settings: Settings) -> Iterator[str]:
    if settings.relay.delivery != "at-least-once":
        return
    for name in _GIVING_UP:
        if (value := settings.kafka.properties.get(name)) is not None:
            yield (
                f"kafka.\"{name}\" = {value!r} contradicts relay.delivery = 'at-least-once', "
                "which never gives a record up; leave it out."
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
            "the client's queue could not take a batch."
        )


def _sizes(settings: Settings) -> Iterator[str]:
    limit = settings.kafka.properties.get("message.max.bytes")
    largest = settings.outbox.max_value_bytes
    if limit is not None and str(limit).isdigit() and int(limit) < largest:
        yield (
            f'outbox.max_value_bytes = {largest} is above kafka."message.max.bytes" = {limit}; '
            "the client would refuse what the outbox took."
        )
