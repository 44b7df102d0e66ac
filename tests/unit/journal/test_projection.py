"""A projection applies every change once, judges each by the journal's life, and forgets what is purged."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inorder.database.database import Transaction
from inorder.journal import projection_runner, service
from inorder.journal.action import Delete, Purge
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.event_types import EventTypes
from inorder.journal.life import Life, life_id
from inorder.journal.projection import (
    Appended,
    BeginScan,
    CatchUp,
    Change,
    ContinueScan,
    Follow,
    Projection,
    Start,
    decide_start,
    plan_catch_up,
)
from inorder.journal.service import Journals
from inorder.journal.stores.ports import JournalHead
from inorder.journal.stores.projection_store import ProjectedJournal, ProjectionPoint
from inorder.model.errors import (
    DamagedRecordError,
    OtherTopicError,
    RecordsLostError,
    TransientError,
    UnreachableError,
    ValidationError,
)
from inorder.model.journal import Event, Key, PartitionOffset, Payload
from inorder.model.message import Record
from inorder.model.partitioning import Extent, Place
from inorder.settings import Settings
from inorder.testing import MemoryJournals
from inorder.testing.memory_journal import MemoryJournalStore, MemorySharedTail
from tests.conftest import Eventually
from tests.selection import examples
from tests.unit.docs.markdown import blocks, page
from tests.unit.journal.projecting import (
    Interrupted,
    ReadModel,
    fold_change,
    in_thread,
    kill_at,
)
from tests.unit.journal.subscribing import IDS, TOPIC, Topic, fold


@pytest.fixture
def topic() -> Topic:
    return Topic(1)


@pytest.fixture
def model(topic: Topic, tmp_path: Path) -> ReadModel:
    return ReadModel(topic, tmp_path / "view.db")


def appended(id: str, *numbers: int) -> list[tuple[str, str, int]]:
    return [(id, "appended", number) for number in numbers]


def test_events_deletes_and_purges_reach_the_handler_in_order(topic: Topic, model: ReadModel) -> None:
    topic.append("a", 1, 2)
    topic.act("a", Delete(1))
    topic.act("a", Purge())
    topic.append("a", 1)
    assert model.catch_up() == {"appended": 3, "deleted": 1, "purged": 1}
    assert model.seen() == [*appended("a", 1, 2), ("a", "deleted", 1), ("a", "purged", 0), *appended("a", 1)]
    assert model.catch_up() == {"appended": 0, "deleted": 0, "purged": 0}


def test_what_is_void_reaches_no_handler_also_after_a_restart_in_the_middle(topic: Topic, model: ReadModel) -> None:
    journal = topic.journals.journal(Key("a", TOPIC))
    journal.append([Event(1), Event(2)])
    old = journal.life()
    model.catch_up()
    topic.append("a", 2, 3)  # a fork
    journal.purge(life=uuid4())  # of a life that never was
    model.catch_up()
    journal.purge()
    topic.append("a", 1)
    journal.purge(life=old)  # repeated, when there is a new life
    journal.delete(life=old)
    model.catch_up()
    assert model.seen() == [*appended("a", 1, 2), ("a", "purged", 0), *appended("a", 1)]


def test_filters_choose_events_by_tag_and_journals_by_prefix(topic: Topic, tmp_path: Path) -> None:
    model = ReadModel(topic, tmp_path / "view.db", options={"tags": {"paid"}, "id_prefix": "order-"})
    order = topic.journals.journal(Key("order-1", TOPIC))
    order.append([Event(1), Event(2, tags=frozenset({"paid", "x"})), Event(3, tags=frozenset({"x"}))])
    topic.append("person-1", 1)
    order.purge()
    assert model.catch_up() == {"appended": 1, "deleted": 0, "purged": 1}
    assert model.seen() == [*appended("order-1", 2), ("order-1", "purged", 0)]


@dataclass(frozen=True)
class Deposited:
    cents: int


def deposited(seq_nr: int, cents: int, version: int = 2) -> Event:
    return Event(seq_nr, {"type": "deposited", "version": version, "data": {"cents": cents}})


def test_types_choose_events_by_the_name_in_their_payload_and_deletes_and_purges_come(
    topic: Topic, tmp_path: Path
) -> None:
    model = ReadModel(topic, tmp_path / "view.db", options={"types": ["deposited"]})
    journal = topic.journals.journal(Key("a", TOPIC))
    others: list[Payload] = [{"type": "closed", "version": 1}, {"type": 1}, "deposited", b"deposited", None, [1]]
    journal.append([deposited(1, 5), *(Event(number, each) for number, each in enumerate(others, 2)), deposited(8, 7)])
    journal.delete(2)
    journal.purge()
    model.catch_up()
    assert model.seen() == [*appended("a", 1, 8), ("a", "deleted", 2), ("a", "purged", 0)]


@pytest.mark.parametrize("is_scanned", [False, True])
def test_the_handler_gets_events_as_their_types_decode_them(topic: Topic, tmp_path: Path, is_scanned: bool) -> None:
    events, got = EventTypes(), list[object]()
    events.register("deposited", version=2)(Deposited)
    events.upcast("deposited", from_version=1)(lambda data: {"cents": data["cents"] * 100})

    def handler(_transaction: Transaction, change: Change) -> None:
        match change:
            case Appended(key, record, Deposited(cents)):
                got.append((key.id, record.seq_nr, cents))

    topic.journals.journal(Key("a", TOPIC)).append([deposited(1, 5, version=1), deposited(2, 7)])
    if is_scanned:
        topic.replicate()
        topic.forget(0)
    ReadModel(topic, tmp_path / "view.db", handler, options={"events": events}).catch_up()
    assert got == [("a", 1, 500), ("a", 2, 7)]


def test_an_event_of_a_type_that_is_not_known_makes_its_partition_wait_unless_it_is_not_chosen(
    topic: Topic, tmp_path: Path, eventually: Eventually
) -> None:
    events = EventTypes()
    events.register("closed")(dict)
    topic.journals.journal(Key("a", TOPIC)).append([Event(1, {"type": "closed", "version": 1, "data": {}})])
    topic.journals.journal(Key("a", TOPIC)).append([deposited(2, 5)])
    others = ReadModel(topic, tmp_path / "others.db", options={"events": events, "types": {"closed"}})
    others.catch_up()
    assert others.seen() == appended("a", 1)
    model = ReadModel(topic, tmp_path / "view.db", options={"events": events})
    runner = model.runner()
    thread = in_thread(runner)
    eventually(lambda: "the type is unknown" in runner.waiting().get((TOPIC, 0), ""))
    eventually(lambda: model.seen() == appended("a", 1))
    events.register("deposited", version=2)(Deposited)
    eventually(lambda: model.seen() == appended("a", 1, 2))
    runner.stop()
    thread.join(60)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_killed_between_the_handlers_writes_and_the_commit_each_change_is_applied_once(
    topic: Topic, tmp_path: Path, at: int
) -> None:
    topic.append("a", 1, 2)
    topic.append("b", 1)
    topic.act("a", Purge())
    topic.append("a", 1)
    killed = ReadModel(topic, tmp_path / "view.db", kill_at(at))
    with pytest.raises(Interrupted):
        killed.catch_up()
    assert killed.seen() == []
    model = ReadModel(topic, tmp_path / "view.db")
    model.catch_up()
    assert model.seen() == [*appended("a", 1, 2), *appended("b", 1), ("a", "purged", 0), *appended("a", 1)]


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    topic: Topic, model: ReadModel, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    topic.append("a", 1, 2)
    runner = model.runner()
    lost: list[bool] = []
    commit = runner._commit

    def lose_answer(*arguments: Any) -> None:
        if not lost:
            lost.append(True)
            raise ConnectionError("the answer to COMMIT is lost")
        commit(*arguments)

    monkeypatch.setattr(runner, "_commit", lose_answer)
    thread = in_thread(runner)
    eventually(lambda: lost)
    topic.append("a", 3)
    eventually(lambda: len(model.seen()) >= 3)
    runner.stop()
    thread.join(60)
    assert model.seen() == appended("a", 1, 2, 3)


def test_of_two_instances_with_one_partition_one_applies_and_the_other_reads_again(
    topic: Topic, model: ReadModel, eventually: Eventually
) -> None:
    """A zombie that was paused before its transaction finds the row moved, and goes on from there."""
    topic.append("a", 1, 2)
    resume, is_paused = threading.Event(), threading.Event()

    def pause() -> None:
        if tail.starts and not resume.is_set():
            is_paused.set()
            resume.wait(60)

    tail = MemorySharedTail(topic.log, {(TOPIC, 0): 0}, pause)
    zombie = model.runner(tail)
    thread = in_thread(zombie)
    assert is_paused.wait(60)
    model.catch_up()
    assert model.seen() == appended("a", 1, 2)
    topic.append("a", 3)
    resume.set()
    eventually(lambda: len(model.seen()) >= 3)
    zombie.stop()
    thread.join(60)
    assert model.seen() == appended("a", 1, 2, 3)


def test_a_handler_that_raises_makes_its_partition_wait_and_nothing_is_skipped(
    tmp_path: Path, eventually: Eventually
) -> None:
    topic, is_mended = Topic(2), threading.Event()
    other = next(id for id in IDS if topic.log.partition_of(TOPIC, id.encode()) != topic.log.partition_of(TOPIC, b"a"))

    def handler(transaction: Transaction, change: Change) -> None:
        fold_change(transaction, change)
        if isinstance(change, Appended) and (change.key.id, change.seq_nr) == ("a", 2) and not is_mended.is_set():
            raise ZeroDivisionError("a mistake in the handler")

    model = ReadModel(topic, tmp_path / "view.db", handler)
    topic.append("a", 1)
    topic.append("a", 2)
    topic.append("a", 3)
    runner = model.runner()
    thread = in_thread(runner)
    eventually(lambda: len(runner.waiting()) == 1 and model.seen("a") == appended("a", 1))
    topic.append(other, 1)
    eventually(lambda: model.seen(other) == appended(other, 1))
    [waiting] = [row for row in model.runner().status() if row.failures]
    assert (waiting.state, waiting.lag, waiting.error) == ("waiting", 2, "ZeroDivisionError: a mistake in the handler")
    is_mended.set()
    eventually(lambda: model.seen("a") == appended("a", 1, 2, 3))
    eventually(lambda: not runner.waiting() and set(runner.lags().values()) == {0})
    runner.stop()
    thread.join(60)
    assert not [row for row in model.runner().status() if row.failures]


def test_pauses_grow_to_a_minute_and_the_partition_counts_as_waiting_until_the_record_is_applied(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection_runner, "jittered", lambda seconds: seconds)
    now, failed, reported = [0.0], list[float](), list[str]()
    waiting, lags = list[list[str]](), list[dict[Place, int]]()

    def handler(transaction: Transaction, change: Change) -> None:
        if len(failed) < 13:
            failed.append(now[0])
            raise ZeroDivisionError("a mistake in the handler")
        fold_change(transaction, change)

    def poll() -> None:
        now[0] += 0.05
        if failed and not model.seen():
            waiting.append(list(runner.waiting().values()))
            lags.append(runner.lags())
        elif failed:
            runner.stop()

    model = ReadModel(topic, tmp_path / "view.db", handler)
    topic.append("a", 1)
    topic.append("a", 2)
    tail = MemorySharedTail(topic.log, {(TOPIC, 0): 0}, poll)
    runner = model.runner(tail, clock=lambda: now[0], on_waiting=reported.append)
    runner.run()
    pauses = [after - before for before, after in pairwise(failed)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60], abs=0.11)
    assert model.seen() == appended("a", 1, 2)
    error = "ZeroDivisionError: a mistake in the handler"
    assert {tuple(each) for each in waiting} == {(error,)}
    assert {each[TOPIC, 0] for each in lags} == {2}
    assert reported[0] == error
    assert [each for each in reported if not each] == reported[-1:] == [""]
    assert (runner.waiting(), runner.lags()) == ({}, {(TOPIC, 0): 0})


def test_a_partition_that_could_not_be_opened_and_has_nothing_to_read_waits_no_more_when_it_is_at_its_end(
    topic: Topic, model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append("a", 1)
    model.catch_up()
    now, reported = [0.0], list[str]()
    extent = MemorySharedTail.extent

    def fail_at_first(self: MemorySharedTail, place: Place) -> Extent:
        if now[0] < 1:
            raise UnreachableError("Kafka is away.")
        return extent(self, place)

    def poll() -> None:
        now[0] += 0.1
        if reported[-1:] == [""]:
            runner.stop()

    monkeypatch.setattr(MemorySharedTail, "extent", fail_at_first)
    tail = MemorySharedTail(topic.log, {(TOPIC, 0): 0}, poll)
    runner = model.runner(tail, clock=lambda: now[0], on_waiting=reported.append)
    runner.run()
    assert (reported[0], runner.waiting()) == ("Kafka is away.", {})
    assert [row.state for row in model.runner().status()] == ["following"]


def test_a_partition_that_goes_to_another_instance_while_it_waits_is_no_longer_reported_here(
    topic: Topic, tmp_path: Path
) -> None:
    reported = list[str]()

    def handler(_transaction: Transaction, _change: Change) -> None:
        raise ZeroDivisionError("a mistake in the handler")

    def poll() -> None:
        if reported:
            tail.places.clear()
        if reported[-1:] == [""]:
            runner.stop()

    model = ReadModel(topic, tmp_path / "view.db", handler)
    topic.append("a", 1)
    tail = MemorySharedTail(topic.log, {(TOPIC, 0): 0}, poll)
    runner = model.runner(tail, on_waiting=reported.append)
    in_thread(runner).join(60)
    assert reported == ["ZeroDivisionError: a mistake in the handler", ""]


def test_a_run_that_ends_by_itself_raises_what_the_handler_raises(topic: Topic, tmp_path: Path) -> None:
    def handler(_transaction: Transaction, _change: Change) -> None:
        raise ZeroDivisionError

    topic.append("a", 1)
    with pytest.raises(ZeroDivisionError):
        ReadModel(topic, tmp_path / "view.db", handler).catch_up()


def test_a_damaged_record_makes_the_partition_wait_unless_it_is_to_be_skipped(topic: Topic, tmp_path: Path) -> None:
    topic.append("a", 1)
    topic.log.send(Record(TOPIC, b"a", b"", ((ACTION_HEADER, b"{"),), None, 0)).result()
    topic.append("a", 2)
    with pytest.raises(DamagedRecordError):
        ReadModel(topic, tmp_path / "view.db").catch_up()
    met: list[DamagedRecordError] = []
    model = ReadModel(topic, tmp_path / "view.db", options={"on_damaged": met.append})
    model.catch_up()
    assert (model.seen(), len(met)) == (appended("a", 1, 2), 1)


def test_a_reset_begins_again(topic: Topic, model: ReadModel) -> None:
    topic.append("a", 1)
    model.catch_up()
    model.database.execute("DELETE FROM view")
    assert model.runner().reset() == 1
    model.catch_up()
    assert model.seen() == [*appended("a", 1), *appended("a", 1)]


def test_another_topic_of_that_name_is_refused(topic: Topic, model: ReadModel) -> None:
    topic.append("a", 1)
    model.catch_up()
    model.topic_id = "two"
    with pytest.raises(OtherTopicError, match="project --reset"):
        model.catch_up()


def test_the_partitions_of_a_topic_that_was_re_created_wait_and_other_topics_continue(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    other, is_accepted = "re-created", threading.Event()
    tail = MemorySharedTail(topic.log, {(other, 0): 0, (TOPIC, 0): 0})

    def require(name: str) -> None:
        if name == other and not is_accepted.is_set():
            raise OtherTopicError("It was deleted and re-created.")

    model = ReadModel(topic, tmp_path / "view.db")
    settings = Settings.load(
        None,
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        database={"url": "postgresql+psycopg://127.0.0.1:1/none"},
        journal={"head_cache": False},
    )
    monkeypatch.setattr(service, "KafkaSharedTail", lambda *_: tail)
    with Journals(settings) as journals:
        monkeypatch.setattr(journals._guard, "require", require)
        monkeypatch.setattr(journals, "store", topic.store)
        projection = Projection("view", fold_change, [TOPIC, other])
        runner = journals.project(projection, database=f"sqlite:///{model.path}")
        topic.append("a", 1)
        topic.journals.journal(Key("b", other)).append([Event(1)])
        thread = in_thread(runner)
        eventually(lambda: model.seen() == appended("a", 1))
        eventually(lambda: runner.waiting() == {(other, 0): "It was deleted and re-created."})
        is_accepted.set()
        eventually(lambda: model.seen("b") == appended("b", 1) and not runner.waiting())
        runner.stop()
        thread.join(60)
        is_accepted.clear()
        with pytest.raises(OtherTopicError):
            journals.project(projection, database=f"sqlite:///{model.path}").run(once=True)


def test_what_retention_has_removed_comes_from_the_store_and_the_rest_from_the_log(
    topic: Topic, model: ReadModel
) -> None:
    topic.append("b", 1, 2, 3)
    topic.append("a", 1)
    topic.act("b", Delete(1))
    topic.replicate()
    topic.forget(0)
    topic.append("a", 2)
    model.catch_up()
    assert model.seen() == [*appended("a", 1), *appended("b", 2, 3), *appended("a", 2)]


def test_a_projection_that_was_down_for_longer_than_the_retention_catches_up_from_the_store(
    topic: Topic, model: ReadModel
) -> None:
    for id in IDS:
        topic.append(id, 1, 2)
    model.catch_up()
    topic.append("a", 3)
    topic.act("b", Purge())
    topic.act("c", Purge())
    topic.append("c", 1)
    topic.act("d", Delete(1))
    topic.replicate()
    topic.forget(0)
    before = len(model.seen())
    model.catch_up()
    assert model.seen()[before:] == [
        *appended("a", 3),
        ("b", "purged", 0),
        ("c", "purged", 0),
        *appended("c", 1),
        ("d", "deleted", 1),
    ]
    assert model.view() == {("a", n, o) for n, o in ((1, 0), (2, 0), (3, 4))} | {("c", 1, 7), ("d", 2, 3)}


def test_what_neither_log_nor_store_has_is_an_error(topic: Topic, model: ReadModel) -> None:
    topic.append("a", 1)
    topic.append("a", 2)
    topic.replicate(behind=1)
    topic.log.forget(TOPIC, 0, 2)
    with pytest.raises(RecordsLostError, match="offset 0 is gone, and was not replicated"):
        model.catch_up()


def test_a_journal_that_is_purged_during_the_scan_leaves_nothing(
    topic: Topic, model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has its last append and its purge, but not its beginning, by which the purge names it."""
    journal = topic.journals.journal(Key("b", TOPIC))
    for id in ("a", "b"):
        topic.append(id, 1, 2)
    topic.replicate()
    topic.forget(0)
    runner = model.runner()
    calls: list[int] = []
    scan = runner._scan

    def scan_later(*arguments: Any) -> None:
        if not calls:
            topic.append("b", 3)
            journal.purge()
            topic.replicate()
        calls.append(1)
        scan(*arguments)

    monkeypatch.setattr(runner, "_scan", scan_later)
    runner.run(once=True)
    assert model.seen() == appended("a", 1, 2)
    topic.append("b", 1)
    model.catch_up()
    assert model.seen("b") == appended("b", 1)


def test_the_example_of_the_page_keeps_balances_and_forgets_who_is_purged_without_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, *_, test = blocks(page("docs/projections.md"), "python")
    shop = ModuleType("shop.projections")
    exec(example, shop.__dict__)  # noqa: S102 - our own page
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.projections", shop)
    namespace: dict[str, Any] = {}
    exec(test, namespace)  # noqa: S102 - our own page
    namespace["test_a_purged_account_has_no_balance"](tmp_path)


def test_a_projection_of_journals_in_memory_follows_them_until_they_are_closed(
    tmp_path: Path, eventually: Eventually
) -> None:
    model = ReadModel(Topic(), tmp_path / "view.db")
    with MemoryJournals(partitions=2) as journals:
        runners = [
            journals.project(Projection("view", fold_change, [TOPIC, "other"]), database=f"sqlite:///{model.path}")
            for _ in range(2)
        ]
        threads = [in_thread(runner) for runner in runners]
        for number, id in product((1, 2), IDS):
            journals.journal(Key(id, TOPIC)).append([Event(number)])
        journals.journal(Key("a", TOPIC)).delete(1)
        journals.journal(Key("e", "other")).append([Event(1)])
        eventually(lambda: len(model.seen()) >= 2 * len(IDS) + 2)
    for thread in threads:
        thread.join(60)
    assert model.seen("a") == [*appended("a", 1, 2), ("a", "deleted", 1)]
    assert sorted(model.seen()) == sorted(
        [*model.seen("a"), *appended("e", 1), *(each for id in IDS[1:] for each in appended(id, 1, 2))]
    )
    assert not any(thread.is_alive() for thread in threads)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(IDS), st.integers(1, 3)),
    st.tuples(st.just("fork"), st.sampled_from(IDS), st.integers(1, 2)),
    st.tuples(st.just("purge"), st.sampled_from(IDS), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from(IDS), st.integers(1, 4)),
    st.tuples(st.just("replicate"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("forget"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("project"), st.none(), st.integers(0, 4)),
)


Step: TypeAlias = tuple[str, Any, Any]
Move: TypeAlias = tuple[Step, bool]
"""A step, and whether it is replicated at once."""


@dataclass
class Writers:
    """Acts on the journals of a topic as some writers would, one of which repeats purges of earlier lives."""

    topic: Topic
    ends: dict[str, int] = field(default_factory=dict)
    lives: dict[str, UUID | None] = field(default_factory=dict)

    def act(self, kind: str, what: Any, number: Any) -> None:
        match kind:
            case "append":
                end = self.ends.get(what, 0)
                self.topic.append(what, *range(end + 1, end + number + 1))
                self.ends[what] = end + number
            case "fork" if self.ends.get(what):
                self.topic.append(what, *range(self.ends[what], self.ends[what] + number))
            case "purge" if self.ends.get(what):
                self._purge(what, is_stale=bool(number) and what in self.lives)
            case "delete":
                self.topic.journals.journal(Key(what, TOPIC)).delete(number)
            case "replicate":
                self.topic.replicate(what % self.topic.partitions)
            case "forget":
                self.topic.forget(what % self.topic.partitions)

    def _purge(self, id: str, *, is_stale: bool) -> None:
        journal = self.topic.journals.journal(Key(id, TOPIC))
        old, self.lives[id] = self.lives.get(id), journal.life()
        journal.purge(life=old if is_stale else None)
        if not is_stale or old == self.lives[id]:
            self.ends[id] = 0


class MeddledStore(MemoryJournalStore):
    """A store in which something happens before each answer, as long as there are steps."""

    def __init__(self, store: MemoryJournalStore, writers: Writers, steps: list[Move]) -> None:
        super().__init__()
        self._journals, self._offsets = store._journals, store._offsets
        self._writers, self._steps = writers, steps

    def pointer(self, key: Key) -> JournalHead | None:
        self._meddle()
        return super().pointer(key)

    def offset(self, topic: str, partition: int) -> int | None:
        self._meddle()
        return super().offset(topic, partition)

    def ids(self, topic: str) -> Iterator[str]:
        for id in super().ids(topic):
            self._meddle()
            yield id

    def _meddle(self) -> None:
        if self._steps:
            step, is_replicated = self._steps.pop(0)
            self._writers.act(*step)
            if is_replicated:
                self._writers.topic.replicate()


def require_view_of_topic(model: ReadModel) -> None:
    _, left = fold(model.topic)
    assert model.view() == {(each.id, each.seq_nr, each.offset) for each in left}


@examples(200)
@given(st.lists(STEPS, max_size=30))
@example([("append", "a", 2), ("replicate", 0, 0), ("replicate", 1, 0), ("forget", 0, 0), ("forget", 1, 0)])
def test_cut_anywhere_and_continued_the_view_is_what_the_topic_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    topic = Topic(2)
    path, writers = tmp_path_factory.mktemp("view") / "view.db", Writers(topic)
    for kind, what, number in steps:
        if kind != "project":
            writers.act(kind, what, number)
            continue
        with (
            closing(ReadModel(topic, path, kill_at(number) if number else fold_change)) as model,
            suppress(Interrupted),
        ):
            model.catch_up()
    with closing(ReadModel(topic, path)) as model:
        model.catch_up()
        require_view_of_topic(model)


MOVES = st.tuples(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 2)),
        st.tuples(st.just("purge"), st.sampled_from("ab"), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from("ab"), st.integers(1, 4)),
    ),
    st.booleans(),
)


@examples(600)
@given(st.lists(STEPS, max_size=8), st.lists(MOVES, max_size=12), st.lists(MOVES, max_size=12))
def test_whatever_happens_while_the_store_is_scanned_the_view_is_what_the_topic_says(
    tmp_path_factory: pytest.TempPathFactory, before: list[Step], since: list[Move], during: list[Move]
) -> None:
    topic = Topic(1)
    path, writers = tmp_path_factory.mktemp("view") / "view.db", Writers(topic)
    for step in before:
        writers.act(*step)
    with closing(ReadModel(topic, path)) as model:
        model.catch_up()
        for step, _ in since:
            writers.act(*step)
        topic.replicate()
        topic.forget(0)
        model.journals = MeddledStore(topic.store, writers, during)
        for _ in range(8):
            with suppress(TransientError, RecordsLostError):  # what an instance that keeps running tries again
                model.catch_up()
        for step, _ in during:
            writers.act(*step)
        model.catch_up()
        require_view_of_topic(model)


NAMED = life_id(Key("a", TOPIC), 0, 3)
RANDOM = UUID("a6a0ad5c-8c3f-4c57-8c8a-1d5c1c0f9d55")


def head(seq_nr: int, id: UUID | None, delete_to: int | None = None) -> JournalHead:
    return JournalHead(PartitionOffset(0, 9), 10, seq_nr, delete_to, record_id=id)


@pytest.mark.parametrize(
    ("journal", "stored", "plan"),
    [
        (None, None, CatchUp()),
        (None, head(3, NAMED), CatchUp(from_seq_nr=1)),
        (ProjectedJournal(None, None, 7), head(3, NAMED), CatchUp(from_seq_nr=1)),
        (ProjectedJournal(Life(3), NAMED, 7), None, CatchUp(is_purged=True)),
        (ProjectedJournal(Life(3), NAMED, 7), head(3, NAMED), CatchUp(from_seq_nr=4)),
        (ProjectedJournal(Life(3), NAMED, 7), head(5, NAMED, 2), CatchUp(False, 2, 4)),
        (ProjectedJournal(Life(3, 3), NAMED, 7), head(5, NAMED, 5), CatchUp(from_seq_nr=4)),
        (ProjectedJournal(Life(3), NAMED, 7), head(5, life_id(Key("a", TOPIC), 0, 8)), CatchUp(True, None, 1)),
        (ProjectedJournal(Life(3), NAMED, 7), head(5, RANDOM), CatchUp(from_seq_nr=4)),
        (ProjectedJournal(Life(3), NAMED, 7), head(2, RANDOM), CatchUp(True, None, 1)),
        (ProjectedJournal(Life(3), RANDOM, 7), head(5, uuid4()), CatchUp(True, None, 1)),
        (ProjectedJournal(Life(3), NAMED, 7), head(4, None, 4), CatchUp(is_purged=True)),
    ],
)
def test_a_scan_leads_from_what_was_shown_to_what_the_store_has(
    journal: ProjectedJournal | None, stored: JournalHead | None, plan: CatchUp
) -> None:
    assert plan_catch_up(journal, stored) == plan


@pytest.mark.parametrize(
    ("point", "first", "replicated", "start"),
    [
        (None, 0, None, Follow(0)),
        (None, 0, 9, Follow(0)),
        (None, 5, 9, BeginScan(10)),
        (None, 5, 4, BeginScan(5)),
        (ProjectionPoint(7), 5, 4, Follow(7)),
        (ProjectionPoint(4), 5, 9, BeginScan(10)),
        (ProjectionPoint(4, scan_id=""), 5, 9, ContinueScan()),
    ],
)
def test_a_partition_continues_at_its_row_or_with_a_scan(
    point: ProjectionPoint | None, first: int, replicated: int | None, start: Start
) -> None:
    assert decide_start(point, first, replicated, (TOPIC, 0)) == start


@pytest.mark.parametrize(
    ("name", "topics", "tags"),
    [("", ["t"], ()), ("x" * 101, ["t"], ()), ("x", [], ()), ("x", "t", ()), ("x", ["t"], "t")],
)
def test_a_projection_that_cannot_be_meant_is_refused(name: str, topics: Any, tags: Any) -> None:
    with pytest.raises(ValidationError):
        Projection(name, fold_change, topics, tags)


def test_types_are_a_list_of_names() -> None:
    with pytest.raises(ValidationError, match="types"):
        Projection("view", fold_change, [TOPIC], types="deposited")
