"""Prometheus metrics of a running relay, read from memory at each scrape.

| name                                            | meaning                                                            |
|---|---|
| `inorder_relay_running`                         | 1 while the relay's threads run                                    |
| `inorder_relay_is_leader`                       | 1 while this instance owns a shard or a topic                      |
| `inorder_relay_published_total`                 | records that this instance published                               |
| `inorder_relay_processed_total`                 | rows that it settled: published, or replaced by a later one        |
| `inorder_relay_exceeded_total`                  | rows that it set aside                                             |
| `inorder_relay_terms_total`                     | how often it became an owner                                       |
| `inorder_relay_in_flight_events`                | rows on their way to the broker                                    |
| `inorder_relay_failing`                         | 1 while it has an error                                            |
| `inorder_relay_last_error_info{error}`          | the error, with numbers left out to keep the number of series low  |
| `inorder_relay_breaker_state{daemon,state}`     | 1 for the state a breaker is in, 0 for the others                  |
| `inorder_relay_reloads_total{outcome}`          | changes of the settings that were `applied` or `refused`           |
| `inorder_outbox_read_age_seconds`               | age of the metrics below; it grows while the database is down      |
| `inorder_outbox_waiting_events`                 | rows that are not published yet                                    |
| `inorder_outbox_oldest_waiting_seconds`         | how long the oldest of them has waited                             |
| `inorder_outbox_paused`                         | topics, keys and shards that operators have paused                 |
| `inorder_outbox_inserted_events`                | strategy `polling`: the newest id of the outbox                    |
| `inorder_outbox_offset`                         | strategy `polling`: how far the outbox is processed                |
| `inorder_outbox_missing_events`                 | strategy `polling`: ids that are looked for, or retried            |
| `inorder_outbox_exceeded_events`                | rows that used up their attempts and wait for an operator          |
| `inorder_outbox_parked_keys`                    | keys that wait for such a row                                      |
| `inorder_topic_waiting_events{topic}`           | strategy `topic-lock`: the same for each topic                     |
| `inorder_topic_oldest_waiting_seconds{topic}`   |                                                                    |

All of them have the label `group`. No label holds a key or an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

BREAKER_STATES = ("closed", "open", "half-open")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NUMBERS = re.compile(r"\d+")
_LONGEST_ERROR = 200

# From the names in the state of the outbox to the names and descriptions of the metrics.
_OUTBOX = {
    "waiting": ("waiting_events", "Rows that are not published yet."),
    "oldest_seconds": ("oldest_waiting_seconds", "How long the oldest of them has waited."),
    "paused": ("paused", "Topics, keys and shards that are paused."),
    "newest_id": ("inserted_events", "The newest id of the outbox."),
    "offset": ("offset", "Every id up to this one is settled or recorded."),
    "missing": ("missing_events", "Ids that are looked for, or retried."),
    "exceeded": ("exceeded_events", "Rows that used up their attempts."),
    "parked_keys": ("parked_keys", "Keys that wait for such a row."),
}


@dataclass(frozen=True, slots=True)
class TopicReading:
    topic: str
    waiting: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class OutboxReading:
    """What the database reported, and how long ago."""

    age_seconds: float
    numbers: Mapping[str, float]
    topics: tuple[TopicReading, ...] = ()


@dataclass(frozen=True, slots=True)
class RelayReading:
    """The state of a relay."""

    group: str
    is_running: bool = False
    is_leader: bool = False
    published: int = 0
    processed: int = 0
    exceeded: int = 0
    terms: int = 0
    in_flight: int = 0
    last_error: str = ""
    breakers: Mapping[str, str] = field(default_factory=dict)
    reloads: Mapping[str, int] = field(default_factory=dict)
    outbox: OutboxReading | None = None


class MetricsRegistry:
    """The registry of a process: one collector of inorder's, and the metrics of any process."""

    def __init__(self, collector: Collector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class RelayMetrics(MetricsRegistry):
    """The metrics of a relay; `read` is called at each scrape and must not block."""

    def __init__(self, read: Callable[[], RelayReading]) -> None:
        super().__init__(RelayCollector(read))


class RelayCollector(Collector):
    """Renders a reading as metrics."""

    def __init__(self, read: Callable[[], RelayReading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        reading = self._read()
        yield from _relay_metrics(reading)
        if reading.outbox is not None:
            yield from _outbox_metrics(reading.group, reading.outbox)


def _relay_metrics(reading: RelayReading) -> Iterator[Metric]:
    group = reading.group
    yield _gauge("relay_running", "Whether the relay's threads run.", group, reading.is_running)
    yield _gauge("relay_is_leader", "Whether this instance owns a shard or a topic.", group, reading.is_leader)
    yield _counter("relay_published", "Records that this instance published.", group, reading.published)
    yield _counter("relay_processed", "Rows that this instance settled.", group, reading.processed)
    yield _counter("relay_exceeded", "Rows that this instance set aside.", group, reading.exceeded)
    yield _counter("relay_terms", "How often this instance became an owner.", group, reading.terms)
    yield _gauge("relay_in_flight_events", "Rows on their way to the broker.", group, reading.in_flight)
    yield _gauge("relay_failing", "Whether the relay has an error.", group, bool(reading.last_error))
    yield from _last_error(reading)
    yield from _breakers(reading)
    reloads = CounterMetricFamily("inorder_relay_reloads", "Changes of the settings.", labels=("group", "outcome"))
    for outcome, count in reading.reloads.items():
        reloads.add_metric((group, outcome), count)
    yield reloads


def _last_error(reading: RelayReading) -> Iterator[Metric]:
    if reading.last_error:
        text = _NUMBERS.sub("#", reading.last_error.splitlines()[0])[:_LONGEST_ERROR]
        family = GaugeMetricFamily(
            "inorder_relay_last_error_info", "The error of the relay.", labels=("group", "error")
        )
        family.add_metric((reading.group, text), 1)
        yield family


def _breakers(reading: RelayReading) -> Iterator[Metric]:
    labels = ("group", "daemon", "state")
    family = GaugeMetricFamily("inorder_relay_breaker_state", "Which state a breaker is in.", labels=labels)
    for daemon, state in reading.breakers.items():
        for each in BREAKER_STATES:
            family.add_metric((reading.group, daemon, each), state == each)
    yield family


def _outbox_metrics(group: str, outbox: OutboxReading) -> Iterator[Metric]:
    yield _gauge("outbox_read_age_seconds", "How old the state of the outbox is.", group, outbox.age_seconds)
    for name, number in outbox.numbers.items():
        if name in _OUTBOX:
            ours, meaning = _OUTBOX[name]
            yield _gauge(f"outbox_{ours}", meaning, group, number)
    waiting = GaugeMetricFamily("inorder_topic_waiting_events", "Rows of a topic.", labels=("group", "topic"))
    oldest = GaugeMetricFamily(
        "inorder_topic_oldest_waiting_seconds", "How long the oldest of them has waited.", labels=("group", "topic")
    )
    for each in outbox.topics:
        waiting.add_metric((group, each.topic), each.waiting)
        oldest.add_metric((group, each.topic), each.oldest_seconds)
    yield from (waiting, oldest) if outbox.topics else ()


def _gauge(name: str, meaning: str, group: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"inorder_{name}", meaning, labels=("group",))
    family.add_metric((group,), value)
    return family


def _counter(name: str, meaning: str, group: str, value: float) -> Metric:
    family = CounterMetricFamily(f"inorder_{name}", meaning, labels=("group",))
    family.add_metric((group,), value)
    return family


# The metrics of another process of this machine. What it has in flight and the state of its breakers are in no
# database: a breaker opens when that cannot be reached.

ASK_SECONDS: Final = 1.0


def read_served(address: tuple[str, int] | None) -> list[Sample] | None:
    """What is served at `health.listen`; None where that is not set or nothing answers there. For display only."""
    if address is None:
        return None
    host, port = address
    place = f"[{host}]" if ":" in host else host
    try:
        with urlopen(f"http://{place}:{port}/metrics", timeout=ASK_SECONDS) as answer:
            return samples_in(answer.read().decode())
    except (OSError, ValueError, HTTPException):
        return None


def samples_in(metrics: str) -> list[Sample]:
    """The lines of a page of metrics."""
    return [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
