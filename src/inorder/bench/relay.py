"""`inorder bench relay`: an outbox drained by our relay, and the same records sent by a plain producer.

The peer has every record in memory and neither database nor transaction, so it is the ceiling of this machine, not a
rival: the ratio says which part of it is left after reading rows, publishing them exactly once and deleting them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from inorder.bench.checking import check_live, check_values
from inorder.bench.figures import Drain, drain_of, latency_of, sent_of
from inorder.bench.load import Load
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, Options
from inorder.bench.place import LIVE_TOPIC, PARTITIONS, TOPIC, BenchPlace
from inorder.bench.report import Check, Side
from inorder.bench.watching import Seen, VisibleEnd, see_records, watch
from inorder.kafka.read_back import read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.outbox import waiting

KEYS = 1_000
PEER = "librdkafka"
WARM_ROWS = 20_000
_FILL_CHUNK = 10_000

Checks = dict[str, Check]


def bench_relay(place: BenchPlace, options: Options) -> tuple[Side, Side, Checks]:
    """Runs both sides one after the other on the same servers: ours, the peer, and what was read back."""
    load = Load(options.rows, KEYS)
    checks: Checks = {}
    _warm_broker(place)
    _fill(place, load)
    with place.service("relay", "run") as relay:
        started = time.monotonic()
        place.say(f"Draining {load.rows:,} outbox rows of {KEYS:,} keys …")
        end = VisibleEnd(place.kafka, place.topic(TOPIC), PARTITIONS)
        looks = watch(end, lambda seen: seen >= load.rows and _is_empty(place), relay.check, DRAIN_CAP_SECONDS)
        checks["ours"] = _read_back(place, TOPIC, load)
        ours = _live(place, options, drain_of(looks, load.rows, started), checks)
    return ours, _peer(place, options, load, checks), checks


def _live(place: BenchPlace, options: Options, drain: Drain, checks: Checks) -> Side:
    schedule, topic = options.schedule, place.topic(LIVE_TOPIC)
    place.say(f"Committing {schedule.rate} rows a second for {schedule.lasts:.0f} s …")
    task = {"url": place.url, "table": place.settings.relay.table, "topic": topic, **options.live_task}
    with place.worker("publish-live", **task) as writer:
        seen = see_records(place.kafka, topic, schedule.total, options.live_cap)
        committed = writer.result(options.live_cap)["committed_ns"]
    checks["ours_live"] = check_live(schedule.total, [one.number for one in seen])
    counted = counted_of(seen, schedule.warm)
    since_commit = [(one.seen_ns - committed[one.number]) / 1e6 for one in counted]
    return Side(
        drain,
        latency_of([one.milliseconds for one in counted]),
        {"commit_to_visible_ms": latency_of(since_commit)},
    )


def _peer(place: BenchPlace, options: Options, load: Load, checks: Checks) -> Side:
    schedule = options.schedule
    topic, live = place.topic(f"{TOPIC}-{PEER}"), place.topic(f"{LIVE_TOPIC}-{PEER}")
    place.say(f"Sending the same records with {PEER} …")
    started = time.monotonic()
    with place.worker("send-all", kafka=place.kafka, topic=topic, rows=load.rows, keys=load.keys) as sender:
        drain = sent_of(load.rows, started, **sender.result(DRAIN_CAP_SECONDS))
    checks["peer"] = _read_back(place, topic, load)
    place.say(f"Sending {schedule.rate} records a second for {schedule.lasts:.0f} s …")
    with place.worker("send-live", kafka=place.kafka, topic=live, **options.live_task):
        seen = see_records(place.kafka, live, schedule.total, options.live_cap)
    checks["peer_live"] = check_live(schedule.total, [one.number for one in seen])
    latency = latency_of([one.milliseconds for one in counted_of(seen, schedule.warm)])
    return Side(drain, latency, {})


def counted_of(seen: Sequence[Seen], warm: int) -> list[Seen]:
    """What was seen, less the warm-up."""
    return [one for one in seen if one.number >= warm]


def _warm_broker(place: BenchPlace) -> None:
    """The first records of a broker's life are slow, and neither side shall pay for that."""
    topic = place.topic("bench-warm-up")
    with place.worker("send-all", kafka=place.kafka, topic=topic, rows=WARM_ROWS, keys=KEYS) as sender:
        sender.result(FILL_CAP_SECONDS)


def _fill(place: BenchPlace, load: Load) -> None:
    place.say(f"Filling the outbox with {load.rows:,} rows …")
    place.topic(TOPIC)
    outbox = Outbox(place.settings.relay.table)
    messages = (Message(TOPIC, key=key, value=value) for key, value in load.records())
    with connect(place.url, "inorder bench (fill)") as connection:
        for chunk in _chunks(messages):
            outbox.publish_list(connection, chunk)
            connection.commit()
    place.watching.execute("ANALYZE")
    place.watching.execute("CHECKPOINT")


def _chunks(messages: Iterator[Message]) -> Iterator[list[Message]]:
    while chunk := list(islice(messages, _FILL_CHUNK)):
        yield chunk


def _is_empty(place: BenchPlace) -> bool:
    return waiting(place.watching, place.settings.relay.table)[0] == 0


def _read_back(place: BenchPlace, topic: str, load: Load) -> Check:
    return check_values(load, (record.value for record in read_back(place.kafka, topic)))
