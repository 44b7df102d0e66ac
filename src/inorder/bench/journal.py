"""`inorder bench journal`: how fast events are appended, and how soon a journal is read back.

| case              | what is done                                                                              |
|---|---|
| batches           | one writer appends ten events at a time, many appends on their way at once                |
| singles           | sixteen writers append one event each and wait until all replicas have it                 |
| recovery, warm    | a journal of a thousand events is read; all is in the store, and the head cache follows   |
| recovery, Kafka   | the same with an empty store, among records of others in the same partition               |
| updates           | sixteen writers recover an entity of their own, decide, and append on that condition      |
| subscription      | everything that was appended is read back as one stream, which is also the check          |
| consumer          | what a consumer's start, a seek and a record cost: why consumers are kept                 |
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from inorder.bench.place import BenchPlace
from inorder.bench.report import ReadBackCheck
from inorder.engines.partition_reader import KafkaSource
from inorder.journal.client import Journal
from inorder.journal.entity import Entity
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.service import Journals
from inorder.journal.stores.kafka_log import ConsumerCost, consumer_cost
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from inorder.settings import Settings
from inorder.testing.checker import Verdict

PAYLOAD: Final = b"x" * 100
IDLE_SECONDS: Final = 2.0
EVENTS: Final = 200_000


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How much of everything."""

    events: int = EVENTS
    batch: int = 10
    writers: int = 16
    seconds: float = 5.0
    journal_events: int = 1_000
    foreign: int = 100_000
    reads: int = 31
    repeats: int = 3
    updates: int = 50
    """Of each writer's entity."""

    @property
    def rounds(self) -> int:
        """How often each journal is appended to in one trial of batches."""
        return max(1, self.events // (JOURNALS * self.batch))


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """What was measured; times in milliseconds."""

    batched_per_second: Sequence[float]
    singles_per_second: Sequence[float]
    warm_ms: Sequence[float]
    kafka_ms: Sequence[float]
    updates_per_second: Sequence[float]
    subscribed_per_second: float
    consumer: ConsumerCost
    check: ReadBackCheck


def bench_journal(place: BenchPlace, options: JournalOptions) -> JournalFigures:
    """All cases, one after another."""
    with closing(Journals(place.settings)) as journals:
        batched, singles = _appends(place, journals, options)
        subscribed, check = _subscription(journals, options)
        place.say(f"subscription: {subscribed:,.0f} events a second")
        warm = _recovery_warm(place, journals, options)
        updates = _updates(place, journals, options)
    kafka = _recovery_from_kafka(place, options)
    cost = consumer_cost(place.kafka, FOREIGN_TOPIC, options.reads)
    return JournalFigures(batched, singles, warm, kafka, updates, subscribed, cost, check)


BATCHES_TOPIC: Final = "journal-batches"
SINGLES_TOPIC: Final = "journal-singles"
RECOVERY_TOPIC: Final = "journal-recovery"
UPDATES_TOPIC: Final = "journal-updates"
FOREIGN_TOPIC: Final = "journal-foreign"
JOURNALS: Final = 100


def _appends(place: BenchPlace, journals: Journals, options: JournalOptions) -> tuple[list[float], list[float]]:
    """Both kinds take turns; the first turn warms client and broker and is not counted."""
    place.topic(BATCHES_TOPIC)
    place.topic(SINGLES_TOPIC)
    batched, singles = [], []
    for turn in range(options.repeats + 1):
        batched.append(_batches(journals, options, turn))
        singles.append(_singles(journals, options, turn))
        heading = "warm-up: " if turn == 0 else ""
        place.say(f"{heading}{batched[-1]:,.0f} events a second in batches, {singles[-1]:,.0f} single appends a second")
    return batched[1:], singles[1:]


def _batches(journals: Journals, options: JournalOptions, turn: int) -> float:
    """Appends without waiting for each; the time ends when all are acknowledged."""
    made = [journals.journal(Key(f"id-{number}", BATCHES_TOPIC)) for number in range(JOURNALS)]
    sent = []
    began = time.perf_counter()
    for number in range(turn * options.rounds, (turn + 1) * options.rounds):
        first = 1 + number * options.batch
        events = [Event(first + step, PAYLOAD) for step in range(options.batch)]
        sent += [each.append_later(events) for each in made]
    wait(sent)
    seconds = time.perf_counter() - began
    for place_of in sent:
        place_of.result()
    return options.rounds * JOURNALS * options.batch / seconds


def _singles(journals: Journals, options: JournalOptions, turn: int) -> float:
    """Each writer has a journal and one append on its way."""
    end = time.perf_counter() + options.seconds

    def write(number: int) -> int:
        journal = journals.journal(Key(f"id-{turn}-{number}", SINGLES_TOPIC))
        count = 0
        while time.perf_counter() < end:
            count += 1
            journal.append([Event(count, PAYLOAD)])
        return count

    with ThreadPoolExecutor(options.writers) as pool:
        return sum(pool.map(write, range(options.writers))) / options.seconds


def _subscription(journals: Journals, options: JournalOptions) -> tuple[float, ReadBackCheck]:
    """Reads all batches back; each journal's numbers must rise one by one."""
    last: Counter[str] = Counter()
    disorder = events = 0
    began = heard = time.perf_counter()
    for batch in journals.subscribe(BATCHES_TOPIC, idle_seconds=IDLE_SECONDS).batches():
        for each in batch:
            disorder += each.record.seq_nr != last[each.key.id] + 1
            last[each.key.id] = each.record.seq_nr
        events += len(batch)
        heard = time.perf_counter()
    expected = (options.repeats + 1) * options.rounds * JOURNALS * options.batch
    verdict = Verdict(lost=max(0, expected - events), out_of_order=disorder)
    return events / (heard - began), ReadBackCheck(events, events, verdict)


def _recovery_warm(place: BenchPlace, journals: Journals, options: JournalOptions) -> list[float]:
    place.topic(RECOVERY_TOPIC)
    journal = journals.journal(Key("recovered", RECOVERY_TOPIC))
    _fill(journal, options)
    replicate_all(place.kafka, place.url, RECOVERY_TOPIC)
    return _read_times(place, journal, options, "replicated, warm head cache")


def _updates(place: BenchPlace, journals: Journals, options: JournalOptions) -> list[float]:
    """Nothing is replicated meanwhile, so each recovery reads the log; the first turn is not counted."""
    place.topic(UPDATES_TOPIC)
    counter = Entity(0, lambda count, _event: count + 1)
    rates = []
    for turn in range(options.repeats + 1):

        def update(number: int, turn: int = turn) -> int:
            key = Key(f"id-{turn}-{number}", UPDATES_TOPIC)
            return [journals.update(key, counter, lambda _: [PAYLOAD]) for _ in range(options.updates)][-1].state

        rates.append(count_rate(update, options))
        place.say(f"{'warm-up: ' if turn == 0 else ''}{rates[-1]:,.0f} updates a second")
    return rates[1:]


def count_rate(update: Callable[[int], int], options: JournalOptions) -> float:
    """Updates a second of all writers; each updates an entity of its own, and returns how often that was updated."""
    began = time.perf_counter()
    with ThreadPoolExecutor(options.writers) as pool:
        counts = set(pool.map(update, range(options.writers)))
    seconds = time.perf_counter() - began
    assert counts == {options.updates}, f"{counts} updates are there"  # noqa: S101 - a figure of less is worth nothing
    return options.writers * options.updates / seconds


def _recovery_from_kafka(place: BenchPlace, options: JournalOptions) -> list[float]:
    """The journal's records lie evenly among those of others, all of them in one partition."""
    ensure_topic(place.kafka, FOREIGN_TOPIC, 1)
    settings = Settings.load(place.config, journal={"head_cache": False})
    with closing(Journals(settings)) as journals:
        journal = journals.journal(Key("recovered", FOREIGN_TOPIC))
        noise = [journals.journal(Key(f"other-{number}", FOREIGN_TOPIC)) for number in range(JOURNALS)]
        appends = options.journal_events // options.batch
        each_time = max(1, options.foreign // appends)

        def disturb(turn: int) -> None:
            numbers = range(turn * each_time, (turn + 1) * each_time)
            wait([noise[n % JOURNALS].append_later([Event(1 + n // JOURNALS, PAYLOAD)]) for n in numbers])

        _fill(journal, options, disturb)
        return _read_times(place, journal, options, "Kafka alone")


def _fill(journal: Journal, options: JournalOptions, before: Callable[[int], None] = lambda turn: None) -> None:  # noqa: ARG005
    for turn, first in enumerate(range(1, options.journal_events + 1, options.batch)):
        before(turn)
        journal.append([Event(first + step, PAYLOAD) for step in range(options.batch)])


def _read_times(place: BenchPlace, journal: Journal, options: JournalOptions, what: str) -> list[float]:
    """The first read opens connections and caches, and is not counted."""
    times = []
    for _ in range(options.reads + 1):
        began = time.perf_counter()
        count = sum(1 for _ in journal.read())
        times.append(1000 * (time.perf_counter() - began))
        assert count == options.journal_events, f"{count} events were read"  # noqa: S101 - a figure of less is worth nothing
    place.say(f"recovery, {what}: {median(times[1:]):,.1f} ms")
    return times[1:]


# Brings the store of a journal topic up to the topic's end, so that reads of what is replicated can be measured.

SEGMENT_SIZE = 10_000
MOST = 200
"""Records a transaction: each may have many events, and the server is not patient with long ones."""


def replicate_all(properties: Mapping[str, Any], url: str, topic: str) -> None:
    """Replicates every record that the topic has now."""
    source = KafkaSource(dict(properties))
    partitions = [(topic, number) for number in range(source.partitions(topic) or 0)]
    left = set(partitions)
    with (
        closing(ReplicateWorker(PostgresReplica(url), SEGMENT_SIZE)) as worker,
        closing(source.open(dict.fromkeys(partitions), headers=True, reports_ends=True)) as reader,
    ):
        while left:
            slices, ended = reader.read(MOST, 1.0)
            for batch in slices:
                worker.apply(batch, expected=0)
            left -= ended
