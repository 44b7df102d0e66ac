"""Measured journals behave as plain ones, and measure the duration and the result of each call."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any

import pytest

from inorder.engines.measures import SILENT
from inorder.journal.client import JournalClient
from inorder.journal.measuring import SlowCalls, StoreBreaker, WatchedStore, measure_loans
from inorder.journal.reading.reader import JournalReader
from inorder.journal.stores.ports import JournalHead
from inorder.journal.subscription import Subscription
from inorder.model.breaker import BreakerOptions
from inorder.model.errors import (
    DamagedRecordError,
    InorderError,
    RejectedError,
    TransientError,
    UnreachableError,
    ValidationError,
)
from inorder.model.journal import MAX_SEQ_NR, Event, EventRecord, Key, PartitionOffset
from inorder.testing.memory_journal import REGIMES, MemoryJournals, MemoryJournalStore, Regime
from tests.unit.journal.hearing import Heard
from tests.unit.journal.subscribing import TOPIC, Topic
from tests.unit.journal.world import KEY, NOON, World


class Measured:
    """A world in memory whose journal, store and codec are measured."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.heard = Heard()
        self.store = WatchedStore(self.world.store, self.heard)
        reader = JournalReader(self.world.log, self.store, lambda: 0.0, meter=self.heard)
        self.journals = JournalClient(self.world.log, self.store, reader, meter=self.heard, now=lambda: NOON)
        self.journal = self.journals.journal(KEY)


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
def heard(measured: Measured) -> Heard:
    return measured.heard


def test_every_verb_is_timed_once_and_does_what_it_did(measured: Measured, heard: Heard) -> None:
    journal = measured.journal
    assert journal.append([Event(1, "a"), Event(2, "b")]).offset == 0
    assert [record.seq_nr for record in journal.read()] == [1, 2]
    assert [record.seq_nr for record in journal.read(2, MAX_SEQ_NR)] == [2]
    assert journal.pointer() == 2
    assert journal.delete(1) is not None
    assert journal.purge() is not None
    assert journal.mark("mine") is not None
    assert {verb: heard.results(verb) for verb in ("append", "read", "pointer", "delete", "purge", "mark")} == {
        "append": (1, 1, 0),
        "read": (2, 2, 0),
        "pointer": (1, 1, 0),
        "delete": (1, 1, 0),
        "purge": (1, 1, 0),
        "mark": (1, 1, 0),
    }
    assert (heard.events("append"), heard.events("read")) == (2, 3)


def test_a_generator_of_events_is_counted_and_written(measured: Measured, heard: Heard) -> None:
    measured.journal.append(Event(number) for number in range(1, 4))
    assert (measured.journal.pointer(), heard.events("append")) == (3, 3)


def test_what_fails_is_told_as_a_failure_and_raised_as_it_is(measured: Measured, heard: Heard) -> None:
    with pytest.raises(ValidationError):
        measured.journal.append([])
    with pytest.raises(ValidationError):
        measured.journal.append_later([])
    with pytest.raises(ValidationError):
        measured.journal.read(0)
    with pytest.raises(ValidationError):
        measured.journal.delete(0)
    assert (heard.results("append"), heard.results("read"), heard.results("delete")) == (
        (2, 0, 2), (1, 0, 1), (1, 0, 1),
    )  # fmt: skip
    assert heard.events("append") == 0


def test_an_append_that_is_not_waited_for_is_told_when_it_is_answered(
    measured: Measured, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Future[PartitionOffset]] = [Future(), Future()]
    waiting = iter(answers)
    monkeypatch.setattr(measured.world.log, "send", lambda _record: next(waiting))
    futures = [measured.journal.append_later([Event(number)]) for number in (1, 2)]
    assert heard.results("append") == (0, 0, 0)
    answers[0].set_result(PartitionOffset(0, 7))
    answers[1].set_exception(RejectedError("too large"))
    assert futures[0].result().offset == 7
    assert (heard.results("append"), heard.events("append")) == ((2, 1, 1), 1)


def test_a_read_that_stops_early_is_no_failure(measured: Measured, heard: Heard) -> None:
    measured.journal.append([Event(number) for number in range(1, 10)])
    records = measured.journal.read()
    assert [record.seq_nr for record in islice(records, 3)] == [1, 2, 3]
    assert heard.results("read") == (0, 0, 0)
    records.close()  # type: ignore[attr-defined]  # a generator has it
    assert (heard.results("read"), heard.events("read")) == ((1, 1, 0), 3)


def test_a_read_that_fails_on_the_way_is_told_with_what_it_gave(measured: Measured, heard: Heard) -> None:
    measured.journal.append([Event(1), Event(2)])
    measured.world.replicate()
    records = measured.journal.read()
    assert next(records).seq_nr == 1
    measured.journal.purge()
    measured.world.replicate()
    with pytest.raises(TransientError):
        list(records)
    assert heard.results("read") == (1, 0, 1)


def test_the_store_is_timed_and_its_events_are_counted(measured: Measured, heard: Heard) -> None:
    measured.journal.append([Event(1), Event(2)])
    measured.world.replicate()
    before = heard.times.copy()
    assert [record.seq_nr for record in measured.journal.read()] == [1, 2]
    assert list(measured.journals.ids(KEY.topic)) == [KEY.id]
    verbs = {labels[-1] for labels in heard.times - before if labels[0] == "store_latency"}
    assert verbs == {"read", "pointer", "offset", "ids"}
    assert heard.numbers["store_events", KEY.topic] == 2


def test_an_error_of_the_store_passes_through_and_is_timed(
    measured: Measured, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Iterator[Any]:
        raise DamagedRecordError("parked", hint="", topic="t", partition=0, offset=0)

    for verb in ("pointer", "offset"):
        monkeypatch.setattr(measured.world.store, verb, broken)
    with pytest.raises(DamagedRecordError):
        measured.store.pointer(KEY)
    with pytest.raises(DamagedRecordError):
        measured.store.offset(KEY.topic, 0)
    assert [heard.times["store_latency", KEY.topic, verb] for verb in ("pointer", "offset")] == [1, 1]


@pytest.mark.parametrize(("payload", "kind"), [("text", "json"), (b"bytes", "binary"), (None, "json")])
def test_the_codec_is_timed_by_the_kind_of_the_value(
    measured: Measured, heard: Heard, payload: str | bytes | None, kind: str
) -> None:
    measured.journal.append([Event(1, payload)])
    [record] = measured.journal.read()
    assert record.event == Event(1, payload)
    assert heard.times["journal_encode", kind] == heard.times["journal_decode", kind] == 1


def test_loans_of_consumers_are_told_in_two_steps(heard: Heard) -> None:
    measure_loans(heard)(0.25, 1.5)
    assert (heard.times, heard.seconds) == ({("journal_consumer", "acquire"): 1, ("journal_consumer", "use"): 1}, 1.75)


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_measured_journals_read_the_same_whatever_replication_does(regime: Regime) -> None:
    plain = World().follow(regime)
    measured = Measured(plain)
    for number in range(1, 8):
        measured.journal.append([Event(number, f"event {number}")])
    measured.journal.delete(3)
    assert [record.seq_nr for record in measured.journal.read()] == plain.read() == [4, 5, 6, 7]
    assert measured.journal.pointer() == plain.journal.pointer()


def test_who_does_not_want_to_know_is_told_nothing() -> None:
    SILENT.took("anything", 1.0, "topic")
    SILENT.add("anything", 1, "topic")


def test_no_figure_names_a_journal(measured: Measured, heard: Heard) -> None:
    journal = measured.journals.journal(Key("secret-id", KEY.topic))
    journal.append([Event(1)])
    list(journal.read())
    assert not [labels for labels in (*heard.times, *heard.numbers) if "secret-id" in labels]


def test_a_slow_call_is_logged_and_those_soon_after_it_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    slow = SlowCalls({"append": 0.5}, clock=lambda: now)
    for call, seconds in (("append", 0.5), ("append", 0.6), ("append", 0.7), ("read", 9.0)):
        slow.report(call, "t", seconds)
    now = 10.0
    slow.report("append", "t", 1.0)
    found = [(record.message, vars(record)["seconds"], vars(record)["others"]) for record in caplog.records]
    assert found == [("journal.slow_call", 0.6, 0), ("journal.slow_call", 1.0, 1)]


def test_snapshots_are_measured_like_other_calls() -> None:
    heard, journals = Heard(), MemoryJournals()
    journals.meter = heard
    journal = journals.journal(KEY)
    journal.append([Event(1, "x")])
    assert journal.save_snapshot(1, "state") is not None
    assert journal.snapshot() == journal.snapshots()[0]
    assert list(journal.recover().events) == []
    assert journal.delete_snapshots() == 1
    calls = ("save_snapshot", "snapshot", "snapshots", "recover", "delete_snapshots")
    assert [heard.results(call) for call in calls] == [(1, 1, 0)] * len(calls)


def test_a_subscription_counts_its_events_and_how_old_they_are() -> None:
    topic, heard = Topic(1), Heard()
    topic.append("a", 1, 2)
    subscription = Subscription(topic.log, topic.store, TOPIC, time.monotonic, idle_seconds=0.0, meter=heard)
    assert len(list(subscription)) == 2
    assert (heard.numbers["subscription_events", TOPIC], heard.times["subscription_event_age", TOPIC]) == (2, 1)


class FailingStore(MemoryJournalStore):
    """A store that fails as long as it has an error."""

    def __init__(self) -> None:
        super().__init__()
        self.error: InorderError | None = UnreachableError("The store is away.")
        self.calls = 0

    def pointer(self, key: Key) -> JournalHead | None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return super().pointer(key)

    def read(self, key: Key, head: JournalHead, from_seq_nr: int) -> Generator[EventRecord, None, None]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        yield from super().read(key, head, from_seq_nr)


class Guarded:
    """A failing store behind a breaker that opens after three failures, for ten seconds."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self.now = 0.0
        self.failing, self.heard = FailingStore(), Heard()
        options = BreakerOptions(is_enabled=is_enabled, threshold=3, open_seconds=10.0)
        self.store = WatchedStore(self.failing, self.heard, breaker=StoreBreaker(options, lambda: self.now))

    def results(self, *calls: str) -> list[str]:
        return [self._result(call) for call in calls]

    def _result(self, call: str) -> str:
        before = self.failing.calls
        try:
            if call == "pointer":
                self.store.pointer(KEY)
            else:
                list(self.store.read(KEY, JournalHead(PartitionOffset(0, 0), 10, 1), 1))
        except (InorderError, LookupError) as error:
            return "failed" if self.failing.calls > before else f"refused: {error}"
        return "ok"


def test_a_store_that_fails_is_not_queried_for_a_while_and_then_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guarded()
    with caplog.at_level("INFO", "inorder.journal"):
        assert guarded.results("pointer", "read", "pointer") == ["failed"] * 3
        [refused] = guarded.results("pointer")
        assert refused.startswith(
            "refused: The store of journals failed 3 times in a row; it is not queried for 10.0 s"
        )
        guarded.now = 9.0
        assert guarded.results("read")[0].startswith("refused")
        guarded.now = 10.0
        assert guarded.results("pointer")[0] == "failed"
        assert guarded.results("pointer")[0].startswith("refused"), "the first failure opens it again"
        guarded.now, guarded.failing.error = 20.0, None
        assert guarded.results("pointer", "pointer") == ["ok", "ok"]
    events = ["journal.store_breaker_opened", "journal.store_breaker_opened", "journal.store_breaker_closed"]
    assert [record.message for record in caplog.records] == events
    results = "success", "failure", "refused"
    counted = {result: guarded.heard.numbers["store_results", KEY.topic, result] for result in results}
    assert counted == {"success": 2, "failure": 4, "refused": 3}


def test_a_success_between_failures_and_an_answer_that_is_an_error_keep_it_closed() -> None:
    guarded = Guarded()
    for _ in range(3):
        assert guarded.results("pointer", "pointer") == ["failed", "failed"]
        away, guarded.failing.error = guarded.failing.error, None
        assert guarded.results("pointer") == ["ok"]
        guarded.failing.error = away
    guarded.failing.error = DamagedRecordError("It is parked.", topic=KEY.topic, partition=0, offset=0)
    assert guarded.results(*["pointer"] * 5) == ["failed"] * 5


def test_without_the_breaker_every_call_is_made() -> None:
    assert Guarded(is_enabled=False).results(*["pointer"] * 5) == ["failed"] * 5


def test_a_slow_store_is_logged_with_its_call(caplog: pytest.LogCaptureFixture) -> None:
    store = WatchedStore(MemoryJournalStore(), slow_calls=SlowCalls({"store_pointer": -1.0}))
    store.pointer(KEY)
    store.offset(KEY.topic, 0)
    assert [(record.message, record.__dict__["call"]) for record in caplog.records] == [
        ("journal.slow_call", "store_pointer")
    ]
