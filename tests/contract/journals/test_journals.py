"""Journals read the same whether replication runs or never ran; on Kafka and PostgreSQL as in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

import pytest

import inorder
from inorder.journal.asynchronous import AsyncJournalClient
from inorder.journal.client import Journal
from inorder.journal.entity import Entity
from inorder.journal.event_types import EventTypes
from inorder.model.errors import (
    EventTypeError,
    RejectedError,
    SeqNrConflictError,
    SnapshotTooOldError,
    ValidationError,
)
from inorder.model.journal import Event, Json, Key, PartitionOffset, Payload
from tests.conftest import Eventually
from tests.contract.journals.conftest import Journals


@pytest.fixture
def journal(journals: Journals, topic: str) -> Journal:
    return journals.journal(Key("id", topic))


def numbers(journal: Journal, *bounds: int) -> list[int]:
    return [record.seq_nr for record in journal.read(*bounds)]


@pytest.mark.usefixtures("replicating")
@pytest.mark.parametrize("first", [1, 2])
def test_the_whole_life_of_a_journal(journal: Journal, first: int) -> None:
    assert (journal.pointer(), numbers(journal), journal.delete()) == (None, [], None)
    journal.append([Event(first, b"one")])
    assert (numbers(journal), journal.pointer()) == ([first], first)
    journal.append([Event(first + 1, {"two": 2}), Event(first + 2)])
    assert numbers(journal, first + 1) == [first + 1, first + 2]
    journal.delete()
    assert (numbers(journal), journal.pointer()) == ([], first + 2)
    journal.purge()
    assert (numbers(journal), journal.pointer()) == ([], None)
    journal.append([Event(first)], expire_after=timedelta(days=1))
    assert (numbers(journal), journal.pointer()) == ([first], first)
    journal.delete(first)
    journal.purge()
    assert journal.pointer() is None


@pytest.mark.usefixtures("replicating")
def test_a_purge_over_replicated_events_hides_them_though_it_is_not_replicated_yet(journal: Journal) -> None:
    journal.append([Event(number) for number in range(1, 12)])
    assert numbers(journal) == list(range(1, 12))
    journal.purge()
    journal.append([Event(1, "new")])
    (only,) = journal.read()
    assert (only.seq_nr, only.event.payload, journal.pointer()) == (1, "new", 1)


@pytest.mark.usefixtures("replicating")
def test_events_keep_all_that_they_were_appended_with(journal: Journal) -> None:
    payloads: list[Payload] = [None, b"\x00\xff", "ü", {"a": [1]}, Json("x"), Json(None)]
    for number, payload in enumerate(payloads, 1):
        place = journal.append(
            [Event(number, payload, frozenset({"t"}))], metadata={"m": 1}, data=[2], headers={"h": "v"}
        )
        found = list(journal.read(number))
        assert [record.event for record in found] == [Event(number, payload, frozenset({"t"}))]
        assert (found[0].partition_offset, found[0].origin, found[0].headers) == (place, "here", {"h": "v"})
        assert (found[0].metadata.header, found[0].metadata.payload.data) == ({"m": 1}, [2])


@pytest.mark.usefixtures("replicating")
def test_ten_events_of_one_append_are_read_the_same_ten_times(journal: Journal) -> None:
    place = journal.append([Event(number, {"n": number}) for number in range(1, 11)])
    for _ in range(10):
        assert [(record.seq_nr, record.partition_offset) for record in journal.read()] == [
            (number, place) for number in range(1, 11)
        ]


@pytest.mark.usefixtures("replicating")
def test_many_journals_at_once_keep_apart(journals: Journals, topic: str) -> None:
    def live(number: int) -> list[int]:
        journal = journals.journal(Key(f"id-{number}", topic))
        for at in range(1, 12):
            journal.append([Event(at, {"of": number})])
        assert journal.pointer() == 11
        assert {record.event.payload["of"] for record in journal.read()} == {number}  # type: ignore[index, call-overload]
        return numbers(journal)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(10))) == [list(range(1, 12))] * 10


def test_an_append_that_expects_another_end_writes_nothing(journal: Journal) -> None:
    journal.append([Event(1)], expected_seq_nr=0)
    journal.append([Event(2)], expected_seq_nr=1)
    with pytest.raises(SeqNrConflictError, match="ends at 2, not at 1; nothing was written"):
        journal.append([Event(3)], expected_seq_nr=1)
    assert numbers(journal) == [1, 2]


@pytest.mark.usefixtures("replicating")
def test_of_many_writers_that_expect_the_same_end_one_succeeds(journal: Journal) -> None:
    rounds, writers = 5, 4

    def write(number: int, end: int) -> int | None:
        """Appends two events, of which another writer may take the first number only."""
        events = [Event(end + 1, number), Event(end + 2, number)][: 1 + number % 2]
        try:
            return journal.append(events, expected_seq_nr=end).offset
        except SeqNrConflictError:
            return None

    winners: list[int] = []
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            end = journal.pointer() or 0
            places = [place for place in pool.map(write, range(writers), [end] * writers) if place is not None]
            assert len(places) == 1
            winners += places
    records = list(journal.read())
    assert [record.seq_nr for record in records] == list(range(1, len(records) + 1))
    assert list(dict.fromkeys(record.offset for record in records)) == winners


@pytest.mark.usefixtures("replicating")
def test_a_purge_and_a_delete_of_an_earlier_life_do_nothing(journal: Journal) -> None:
    journal.append([Event(1), Event(2)])
    first = journal.life()
    journal.purge()
    journal.append([Event(1, "new"), Event(2, "new")], append_id="again")
    journal.purge(life=first)
    journal.delete(2, life=first)
    journal.append([Event(1, "new"), Event(2, "new")], append_id="again")
    assert [record.event.payload for record in journal.read()] == ["new", "new"]
    assert journal.life() not in (None, first)


def test_of_two_writers_with_the_same_number_the_first_wins(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    journal.append([Event(1, "first")])
    journal.append([Event(1, "second")])
    assert [record.event.payload for record in journal.read()] == ["first"]
    assert any("journal.fork" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("events", "words"),
    [([], "there is none"), ([Event(0)], "0 is not a sequence number"), ([Event(2), Event(1)], "seq_nr 1 follows 2")],
)
def test_bad_events_are_refused_before_anything_is_sent(journal: Journal, events: list[Event], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        journal.append(events)
    assert journal.pointer() is None


def test_a_payload_that_is_too_large_is_named(journal: Journal) -> None:
    with pytest.raises((RejectedError, ValidationError), match="bytes"):
        journal.append([Event(1, b"x" * 1_100_000)])
    journal.append([Event(1)])
    assert numbers(journal) == [1]


@pytest.mark.usefixtures("replicating")
def test_a_journal_is_recovered_from_its_latest_snapshot_in_this_life(journal: Journal) -> None:
    def recovered() -> tuple[object, list[int]]:
        found = journal.recover()
        return None if found.snapshot is None else found.snapshot.payload, [record.seq_nr for record in found.events]

    assert recovered() == (None, [])
    journal.append([Event(number) for number in range(1, 6)])
    with pytest.raises(ValidationError):
        journal.save_snapshot(6)
    for number in (1, 2, 4):
        assert journal.save_snapshot(number, {"sum": number}, metadata="mine") is not None
    assert recovered() == ({"sum": 4}, [5])
    journal.delete(4)
    assert recovered() == ({"sum": 4}, [5])
    journal.append([Event(6), Event(7)])
    journal.delete(6)
    with pytest.raises(SnapshotTooOldError):
        journal.recover()
    assert journal.delete_snapshots(inorder.SnapshotCriteria(max_seq_nr=4)) == 3
    assert recovered() == (None, [7])
    journal.purge()
    assert (journal.snapshot(), recovered()) == (None, (None, []))
    journal.append([Event(1), Event(2)])
    assert journal.save_snapshot(1, "second life") is not None
    assert (recovered(), [each.seq_nr for each in journal.snapshots()]) == (("second life", [2]), [1])


@pytest.mark.usefixtures("replicating")
def test_a_subscription_shows_every_event_once_and_after_a_checkpoint_the_rest(journals: Journals, topic: str) -> None:
    expected = [(f"id {journal}", number) for journal in range(4) for number in (1, 2, 3)]
    for id, number in expected:
        journals.journal(Key(id, topic)).append([Event(number)])

    def take(count: int, checkpoint: object = None) -> list[tuple[str, int, object]]:
        with journals.subscribe(topic, checkpoint) as events:
            return [(each.key.id, each.record.seq_nr, each.checkpoint) for each in islice(events, count)]

    whole = take(len(expected))
    assert sorted((id, number) for id, number, _ in whole) == expected
    rest = take(len(expected) - 5, whole[4][2])
    assert sorted(each[:2] for each in rest) == sorted(each[:2] for each in whole[5:])


@pytest.mark.usefixtures("replicating")
@pytest.mark.parametrize("replicating", [True], indirect=True, ids=["replicating"])
def test_journals_are_found_by_who_began_them_and_by_their_days(
    journals: Journals, topic: str, eventually: Eventually
) -> None:
    def ids(**where: Any) -> list[str]:
        return sorted(each.id for each in journals.find(topic, **where))

    def is_replicated(place: PartitionOffset | None) -> bool:
        return place is not None and (journals.store.offset(topic, place.partition) or 0) >= place.offset

    for id, days in (("short", 1), ("long", 9), ("lasting", None), ("purged", None)):
        journal = journals.journal(Key(id, topic))
        journal.append([Event(1), Event(2)], expire_after=None if days is None else timedelta(days=days))
        acts: dict[str, Callable[[], PartitionOffset | None]] = {
            "long": partial(journal.delete, 1),
            "purged": journal.purge,
        }
        place = acts.get(id, journal.mark)()
        for _ in range(3):
            journal.mark()  # the replicator in memory is some records behind
        eventually(partial(is_replicated, place))
    assert ids() == ["lasting", "long", "short"]
    found = {each.id: each for each in journals.find(topic)}
    assert (found["long"].seq_nr, found["long"].delete_to, found["long"].origin) == (2, 1, "here")
    assert (found["lasting"].expires, found["lasting"].delete_to) == (None, None)
    assert found["long"].created <= found["long"].updated
    first, expiry = found["short"].created.date(), found["short"].expires
    assert ids(created=first) == sorted(id for id, each in found.items() if each.created.date() == first)
    assert ids(created=first - timedelta(days=1)) == []
    assert ids(expires=expiry) == ["short"]
    assert ids(origin="here", created=first, expires=expiry) == ["short"]
    assert ids(origin="another") == []
    assert list(journals.find("unknown")) == []


@pytest.mark.usefixtures("replicating")
def test_async_code_has_the_same_journals(journals: Journals, topic: str) -> None:
    async def live() -> None:
        async with AsyncJournalClient(journals, journals.subscribe) as client:
            journal = client.journal(Key("id", topic))
            await asyncio.gather(*(client.journal(Key(f"id-{n}", topic)).append([Event(1)]) for n in range(20)))
            await journal.append([Event(1), Event(2)], expected_seq_nr=0)
            with pytest.raises(SeqNrConflictError):
                await journal.append([Event(1)], expected_seq_nr=0)
            assert [record.seq_nr async for record in journal.read()] == [1, 2]
            assert (await journal.pointer(), await journal.save_snapshot(1, "one") is not None) == (2, True)
            recovery = await journal.recover()
            assert [record.seq_nr async for record in recovery.events] == [2]
            await journal.purge()
            assert await journal.pointer() is None

    asyncio.run(live())


@dataclass(frozen=True)
class Account:
    balance: int = 0
    changes: int = 0


ACCOUNT = Entity(
    Account(), lambda account, event: Account(account.balance + event["by"], account.changes + 1), snapshot_every=5
)


def change(by: int) -> Callable[[Account], list[dict[str, int]] | None]:
    """A change, unless it overdraws the account, with the balance that it was decided on."""
    return lambda account: None if account.balance + by < 0 else [{"by": by, "on": account.balance}]


@pytest.mark.full
@pytest.mark.usefixtures("replicating")
def test_threads_that_update_one_account_decide_on_its_true_state(journals: Journals, topic: str) -> None:
    key, threads = Key("account", topic), 4

    def work(number: int) -> int:
        changes = (number, -2, 3, -number, 1)
        return sum(by for by in changes if journals.update(key, ACCOUNT, change(by), attempts=50).events)

    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(work, range(1, threads + 1)))
    balance = 0
    for record in journals.journal(key).read():
        payload = record.event.payload
        assert isinstance(payload, dict)
        assert payload["on"] == balance >= 0
        balance += payload["by"]
    account = journals.state(key, ACCOUNT)
    assert (account.balance, account.changes) == (balance, journals.journal(key).pointer())
    assert balance == total


@pytest.mark.usefixtures("replicating")
def test_an_entity_is_recovered_from_snapshot_and_events_and_begins_anew_after_a_purge(
    journals: Journals, topic: str
) -> None:
    key = Key("account", topic)
    for number in range(1, 13):
        assert journals.update(key, ACCOUNT, change(1)).state == Account(number, number)
    journal = journals.journal(key)
    assert [each.seq_nr for each in journal.snapshots()] == [10, 5]
    journal.delete(10)
    assert journals.state(key, ACCOUNT) == Account(12, 12)

    def overtaken(account: Account) -> list[dict[str, int]]:
        if account.balance == 12:  # the first time
            journal.purge()
            journals.update(key, ACCOUNT, lambda _: [{"by": 100}] * 12)  # as many events as before
        return [{"by": 1}]

    done = journals.update(key, ACCOUNT, overtaken)
    assert (done.state, done.seq_nr, done.attempts) == (Account(1201, 13), 13, 2)
    assert journals.state(key, ACCOUNT) == Account(1201, 13)
    assert [each.seq_nr for each in journal.snapshots()] == [12]


EVENTS = EventTypes()


@EVENTS.register("account.changed", version=2)
@dataclass(frozen=True)
class Changed:
    by: Decimal
    at: datetime


@EVENTS.upcast("account.changed", from_version=1)
def add_time(data: dict[str, object]) -> dict[str, object]:
    return {**data, "at": "2026-01-01T00:00:00Z"}


@pytest.mark.usefixtures("replicating")
def test_events_of_two_versions_are_read_by_one_class(journals: Journals, topic: str) -> None:
    key, now = Key("account", topic), datetime(2026, 1, 1, tzinfo=UTC)
    changes: Entity[tuple[Changed, ...]] = Entity((), lambda state, event: (*state, event), events=EVENTS)
    journals.journal(key).append([Event(1, {"type": "account.changed", "version": 1, "data": {"by": "1.50"}})])
    done = journals.update(key, changes, lambda _: [Changed(Decimal("2.50"), now)])
    assert done.state == (Changed(Decimal("1.50"), now), Changed(Decimal("2.50"), now))
    assert journals.state(key, changes) == done.state
    journals.journal(key).append([Event(3, {"type": "account.changed", "version": 3, "data": {}})])
    with pytest.raises(EventTypeError, match=f"Event 3 of {topic}:account, type 'account.changed', version 3"):
        journals.state(key, changes)
