"""Payloads that are sealed with a key of their journal's life open in that life, and never again after its purge."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.client import Journal
from inorder.journal.codec import RecordSender, action_of, append_record, events_of
from inorder.journal.entity import Entity
from inorder.journal.keys import CACHE_SECONDS, SEALED, DataKey, JournalKeys, key_id_of
from inorder.journal.projection import Appended, Projection, Purged
from inorder.journal.service import Journals
from inorder.model.errors import (
    ConfigurationError,
    DamagedRecordError,
    SeqNrConflictError,
    ShreddedError,
    TransientError,
    UnreachableError,
)
from inorder.model.journal import Event, EventRecord, Json, Key, Payload, RecordMetadata
from inorder.model.message import Limits
from inorder.settings import Settings
from inorder.testing import IN_STEP, NEVER, AsyncMemoryJournals, MemoryJournals, Regime
from tests.selection import examples
from tests.unit.journal.world import NOON

TOPIC = "journal"
ID = Key("person-1", TOPIC)
SECRET = "Ada Lovelace"


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'keys.db'}"


@pytest.fixture(params=[IN_STEP, NEVER], ids=["replicated", "not replicated"])
def journals(request: pytest.FixtureRequest, url: str) -> Iterator[MemoryJournals]:
    with MemoryJournals(regime=request.param, keys=url) as journals:
        yield journals


@pytest.fixture
def journal(journals: MemoryJournals) -> Journal:
    return journals.journal(ID)


def keys_of(journals: MemoryJournals) -> JournalKeys:
    assert journals.keys is not None
    return journals.keys


def payloads(journal: Journal) -> list[Payload]:
    return [record.event.payload for record in journal.read()]


def retained(journals: MemoryJournals, key: Key = ID) -> list[EventRecord]:
    """The events of a journal as the log still has them, of all its lives."""
    found: list[EventRecord] = []
    for record in journals.log.records_between(TOPIC, 0, 0, journals.log.end(TOPIC, 0)):
        action = action_of(record, TOPIC, 0)
        if record.key == key.id.encode() and record.value is not None:
            found += events_of(action, record, TOPIC, 0)  # type: ignore[arg-type] # only appends have values
    return found


def rows(url: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        return database.execute("SELECT id, key_id, life, secret FROM inorder_journal_key ORDER BY rowid").fetchall()


def secrets(url: str) -> list[bytes]:
    return [secret for *_, secret in rows(url) if secret is not None]


def crash(*_: object) -> None:
    raise Crash


@contextmanager
def dying_at(journals: MemoryJournals, step: str) -> Iterator[None]:
    """A process that dies before a step of its keys."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys_of(journals), step, crash)
        with pytest.raises(Crash):
            yield


def send_raw(journals: MemoryJournals, key: Key, *events: Event) -> None:
    """Appends as any program may that has the right to write to the topic."""
    journals.log.send(append_record(key, events, NOON, RecordSender(), RecordMetadata(), {}, Limits())).result()


def test_what_is_appended_is_read_and_neither_log_nor_store_has_it(journals: MemoryJournals, journal: Journal) -> None:
    given: list[Payload] = [{"name": SECRET}, SECRET, SECRET.encode(), Json(SECRET), Json(None), None, [SECRET], 1]
    journal.append([Event(number, each, frozenset({"t"})) for number, each in enumerate(given, 1)])
    journal.append([Event(9, SECRET)], expected_seq_nr=8)
    assert payloads(journal) == [*given, SECRET]
    assert [record.event.tags for record in journal.read(1, 2)] == [frozenset({"t"})] * 2
    assert SECRET.encode() not in b"".join(
        record.value or b"" for record in journals.log.records_between(TOPIC, 0, 0, journals.log.end(TOPIC, 0))
    )
    head = journals.store.pointer(ID)
    stored = [] if head is None else list(journals.store.read(ID, head, 1))
    assert all(key_id_of(record.event.payload) for record in (*stored, *retained(journals)))


def test_a_life_has_one_key_and_another_journal_another(journals: MemoryJournals, journal: Journal, url: str) -> None:
    for number in (1, 2, 3):
        journal.append([Event(number, SECRET)])
    journals.journal(Key("person-2", TOPIC)).append([Event(1, SECRET)])
    found = [(id, life) for id, _, life, _ in rows(url)]
    assert found == [
        ("person-1", str(journal.life())),
        ("person-2", str(journals.journal(Key("person-2", TOPIC)).life())),
    ]
    assert len(set(secrets(url))) == 2


def test_after_a_purge_the_bytes_that_the_log_retains_cannot_be_opened(
    journals: MemoryJournals, journal: Journal, url: str
) -> None:
    journal.append([Event(1, SECRET), Event(2, SECRET)])
    before = retained(journals)
    assert keys_of(journals).open_event(ID, before[0]).event.payload == SECRET
    journal.purge()
    assert secrets(url) == []
    for record in before:
        with pytest.raises(
            ShreddedError, match=r"Number [12] of journal:person-1 cannot be read: its key was destroyed"
        ):
            keys_of(journals).open_event(ID, record)
    journal.append([Event(1, "new")])
    assert payloads(journal) == ["new"]
    assert key_id_of(retained(journals)[-1].event.payload) != key_id_of(before[0].event.payload)
    assert len(secrets(url)) == 1


def test_a_payload_that_is_moved_to_another_number_or_journal_or_is_changed_is_damage(
    journals: MemoryJournals, journal: Journal
) -> None:
    journal.append([Event(1, SECRET)])
    other = journals.journal(Key("person-2", TOPIC))
    other.append([Event(1, "other")])
    [sealed] = [record.event.payload for record in retained(journals)]
    assert isinstance(sealed, bytes)
    send_raw(journals, ID, Event(2, sealed))
    send_raw(journals, other.key, Event(2, sealed))
    with pytest.raises(DamagedRecordError, match="was not sealed for it, or was changed"):
        payloads(journal)
    with pytest.raises(DamagedRecordError, match="is not in the database of"):
        payloads(other)
    [theirs] = [record.event.payload for record in retained(journals, other.key) if record.seq_nr == 1]
    assert isinstance(theirs, bytes)
    swapped = SEALED + theirs[len(SEALED) : len(SEALED) + 16] + sealed[len(SEALED) + 16 :]
    for payload in (swapped, sealed[:-1] + bytes([sealed[-1] ^ 1])):
        key = other.key if payload == swapped else ID
        forged = replace(retained(journals)[0], event=Event(1, payload))
        with pytest.raises(DamagedRecordError, match="was not sealed for it"):
            keys_of(journals).open_event(key, forged)


def test_a_payload_does_not_open_in_another_journal_or_topic_even_with_its_key(
    journals: MemoryJournals, journal: Journal, url: str
) -> None:
    journal.append([Event(1, SECRET)])
    [record] = retained(journals)
    others = [Key("person-2", TOPIC), Key(ID.id, "other")]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        for key in others:
            database.execute(
                "INSERT INTO inorder_journal_key (key_id, topic, id, log_partition, seen, secret)"
                " SELECT key_id, ?, ?, log_partition, seen, secret FROM inorder_journal_key WHERE topic = ? AND id = ?",
                [key.topic, key.id, ID.topic, ID.id],
            )
    for key in others:
        with pytest.raises(DamagedRecordError, match="was not sealed for it"):
            keys_of(journals).open_event(key, record)


def test_payloads_from_before_keys_were_used_are_read_as_they_are(url: str) -> None:
    plain = MemoryJournals()
    plain.journal(ID).append([Event(1, SECRET)])
    plain.keys = JournalKeys(url)
    plain.journal(ID).append([Event(2, SECRET)])
    assert payloads(plain.journal(ID)) == [SECRET, SECRET]
    assert [key_id_of(record.event.payload) is None for record in retained(plain)] == [True, False]
    plain.journal(ID).purge()
    assert secrets(url) == []
    plain.close()


def test_snapshots_are_sealed_with_the_same_key_and_destroyed_with_it(
    journals: MemoryJournals, journal: Journal
) -> None:
    journal.append([Event(1, SECRET)])
    assert journal.save_snapshot(1, {"name": SECRET}, metadata="mine") is not None
    found = journal.snapshot()
    assert found is not None
    assert (found.payload, found.metadata) == ({"name": SECRET}, "mine")
    assert [each.payload for each in journal.snapshots()] == [{"name": SECRET}]
    recovered = journal.recover().snapshot
    assert recovered is not None
    assert recovered.payload == {"name": SECRET}
    assert journals.snapshot_history is not None
    store = journals.snapshot_history.store
    [kept] = [store.load(ID, row) for row in store.rows(ID)]
    assert kept is not None
    assert key_id_of(kept.payload) is not None
    with pytest.raises(DamagedRecordError, match="was not sealed for it"):
        keys_of(journals).open_snapshot(ID, replace(kept, payload=retained(journals)[0].event.payload))
    journal.purge()
    with pytest.raises(ShreddedError):
        keys_of(journals).open_snapshot(ID, kept)
    with pytest.raises(DamagedRecordError):
        keys_of(journals).open_snapshot(Key("person-2", TOPIC), kept)


def test_entities_and_async_code_use_keys_too(url: str) -> None:
    entity: Entity[tuple[Any, ...]] = Entity((), lambda state, event: (*state, event), snapshot_every=2)

    async def live(journals: AsyncMemoryJournals) -> None:
        for number in range(1, 6):
            done = await journals.update(ID, entity, lambda _: [{"name": SECRET}])
            assert done.seq_nr == number
        await journals.journal(ID).append([Event(6, SECRET)])
        assert [record.event.payload async for record in journals.journal(ID).read(5)] == [{"name": SECRET}, SECRET]
        await journals.close()

    memory = MemoryJournals(keys=url)
    asyncio.run(live(AsyncMemoryJournals(memory)))
    assert all(key_id_of(record.event.payload) for record in retained(memory))


def test_an_append_that_does_not_wait_is_refused(journal: Journal) -> None:
    with pytest.raises(ConfigurationError, match="append_later cannot be used with"):
        journal.append_later([Event(1, SECRET)])


def test_after_a_crash_between_purge_and_key_the_purge_again_destroys_it(
    journals: MemoryJournals, journal: Journal, url: str
) -> None:
    journal.append([Event(1, SECRET)])
    first = journal.life()
    with dying_at(journals, "shred"):
        journal.purge()
    assert (journal.pointer(), len(secrets(url))) == (None, 1)
    journal.purge()
    assert secrets(url) == []
    journal.append([Event(1, SECRET)])
    second = journal.life()
    with dying_at(journals, "shred"):
        journal.purge()
    journal.append([Event(1, "new")])
    assert len(secrets(url)) == 2
    journal.purge(life=second)
    assert (payloads(journal), len(secrets(url))) == (["new"], 1)
    journal.purge(life=first)
    assert payloads(journal) == ["new"]
    journal.purge()
    assert secrets(url) == []


def test_a_purge_of_an_earlier_life_spares_the_key_of_this_one(journals: MemoryJournals, journal: Journal) -> None:
    journal.append([Event(1, SECRET)])
    first = journal.life()
    journal.purge()
    journal.append([Event(1, "new")])
    journal.purge(life=first)
    keys_of(journals).close()  # forgets what is in memory
    assert payloads(journal) == ["new"]


def test_a_writer_that_dies_before_it_recorded_the_life_leaves_a_key_that_a_purge_finds(
    journals: MemoryJournals, journal: Journal, url: str
) -> None:
    with dying_at(journals, "keep"):
        journal.append([Event(1, SECRET)])
    assert payloads(journal) == [SECRET]
    journal.append([Event(2, SECRET)])
    assert (payloads(journal), len(secrets(url))) == ([SECRET, SECRET], 2)
    journal.purge()
    assert secrets(url) == []


def test_a_key_database_that_is_away_costs_no_append_its_answer_and_a_purge_says_what_to_repeat(
    journals: MemoryJournals, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnreachableError("The database is away.")

    store = keys_of(journals)._store
    with monkeypatch.context() as patched:
        patched.setattr(store, "adopt", fail)
        journal.append([Event(1, SECRET)])
    life = journal.life()
    with monkeypatch.context() as patched:
        patched.setattr(store, "destroy_lives", fail)
        with pytest.raises(TransientError) as raised:
            journal.purge()
    assert "is purged at 0:" in raised.value.message
    assert raised.value.hint == f"Repeat the purge, with life={life!r}."
    assert (journal.pointer(), len(secrets(url))) == (None, 1)
    journal.purge(life=life)
    assert secrets(url) == []


def test_an_update_that_a_purge_overtakes_while_it_recovers_decides_again(
    journals: MemoryJournals, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity: Entity[tuple[Any, ...]] = Entity((), lambda state, event: (*state, event))
    journal.append([Event(1, SECRET)])
    recover = Journal.recover

    def recover_then_purge(self: Journal, *arguments: Any) -> Any:
        found = recover(self, *arguments)
        monkeypatch.setattr(Journal, "recover", recover)
        journal.purge()
        return found

    monkeypatch.setattr(Journal, "recover", recover_then_purge)
    assert journals.update(ID, entity, lambda state: [{"after": len(state)}]).state == ({"after": 0},)


def test_a_journal_that_cannot_be_read_is_purged_with_all_its_keys(
    journals: MemoryJournals, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying_at(journals, "keep"):
        journal.append([Event(1, SECRET)])
    journal.append([Event(2, SECRET)])

    def fail(*_: object) -> None:
        raise DamagedRecordError("It cannot be read.", topic=TOPIC, partition=0, offset=0)

    monkeypatch.setattr(journals, "moment", fail)
    journal.purge()
    assert secrets(url) == []


def between(journals: MemoryJournals, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Lets something happen once, after the next writer has its key and before it sends."""
    keys = keys_of(journals)
    take = keys.take

    def take_then_act(*arguments: Any) -> DataKey:
        taken = take(*arguments)
        monkeypatch.setattr(keys, "take", take)
        act()
        return taken

    monkeypatch.setattr(keys, "take", take_then_act)


def test_an_append_that_a_purge_overtakes_is_sealed_again_and_read(
    journals: MemoryJournals, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append([Event(1, SECRET)])
    between(journals, monkeypatch, journal.purge)
    journal.append([Event(2, "after")])
    assert payloads(journal) == ["after"]
    between(journals, monkeypatch, journal.purge)
    with pytest.raises(SeqNrConflictError):
        journal.append([Event(3, "after")], expected_seq_nr=2)
    assert payloads(journal) == []


def test_the_key_of_a_first_append_that_is_under_way_outlives_the_lives_before_it(
    journals: MemoryJournals, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made when there was no journal, and its record comes when there is none again."""

    def live_and_die() -> None:
        journal.append([Event(1, SECRET)])
        journal.purge()

    between(journals, monkeypatch, live_and_die)
    journal.append([Event(1, "late")])
    keys_of(journals).close()
    assert payloads(journal) == ["late"]


def test_a_key_for_a_life_that_began_after_the_mark_is_not_taken_for_one_from_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may have moved on since the mark; a purge that saw the former life destroys what was there before."""
    journals = MemoryJournals(keys=url)
    journal = journals.journal(ID)
    journal.append([Event(1, SECRET)])
    moment = journals.reader.moment

    def move_on(*arguments: Any) -> Any:
        monkeypatch.setattr(journals.reader, "moment", moment)
        journal.purge()
        with dying_at(journals, "keep"):
            journal.append([Event(1, "new")])
        return moment(*arguments)

    monkeypatch.setattr(journals.reader, "moment", move_on)
    journal.append([Event(2, "new")])
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        found = database.execute(
            "SELECT seen FROM inorder_journal_key WHERE life = ?", [str(journal.life())]
        ).fetchall()
    began = next(record.offset for record in retained(journals) if record.seq_nr == 1 and record.offset > 1)
    assert [seen >= began for (seen,) in found] == [True]
    assert payloads(journal) == ["new", "new"]
    journals.close()


def test_of_two_writers_that_begin_a_life_the_void_one_leaves_no_key(
    journals: MemoryJournals, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(journals, monkeypatch, lambda: journal.append([Event(1, "first")]))
    with pytest.raises(SeqNrConflictError):
        journal.append([Event(1, SECRET)], expected_seq_nr=0)
    assert (payloads(journal), len(secrets(url))) == (["first"], 1)
    between(journals, monkeypatch, lambda: journal.append([Event(2, "second")]))
    journal.append([Event(2, SECRET)])  # its number is taken: it is void, and no error says so
    assert payloads(journal) == ["first", "second"]


def test_an_append_that_is_too_large_when_it_is_sealed_leaves_no_key(journals: MemoryJournals, url: str) -> None:
    journals.limits = replace(journals.limits, max_value_bytes=100)
    with pytest.raises(ConfigurationError):
        journals.journal(ID).append([Event(1, b"x" * 40)])
    assert secrets(url) == []


def test_a_subscription_and_a_projection_leave_out_what_was_shredded_and_nothing_else(
    journals: MemoryJournals, journal: Journal, tmp_path: Path
) -> None:
    seen: list[object] = []

    def project(_transaction: object, change: object) -> None:
        seen.append((change.key.id, change.payload) if isinstance(change, Appended) else change)

    other = journals.journal(Key("person-2", TOPIC))
    journal.append([Event(1, SECRET)])
    other.append([Event(1, {"type": "t", "n": 1})])
    journal.purge()
    journal.append([Event(1, {"type": "t", "n": 2})])
    wanted = [("person-2", {"type": "t", "n": 1}), ("person-1", {"type": "t", "n": 2})]
    shown = [(each.key.id, each.record.event.payload) for each in journals.subscribe(TOPIC, idle_seconds=0)]
    assert sorted(shown, key=str) == sorted(wanted, key=str)
    projection = Projection("p", project, [TOPIC], types=["t"])
    journals.project(projection, database=f"sqlite:///{tmp_path / 'view.db'}").run(once=True)
    assert seen == [wanted[0], Purged(ID), wanted[1]]


def test_an_event_whose_key_is_missing_is_never_skipped_unless_that_is_wanted(
    journals: MemoryJournals, journal: Journal, tmp_path: Path, url: str
) -> None:
    journal.append([Event(1, SECRET)])
    journal.append([Event(2, SECRET)])
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("DELETE FROM inorder_journal_key")
    keys_of(journals).close()
    with pytest.raises(DamagedRecordError, match="is the database of all writers"):
        payloads(journal)
    with pytest.raises(DamagedRecordError):
        list(journals.subscribe(TOPIC, idle_seconds=0))
    view = f"sqlite:///{tmp_path / 'view.db'}"
    seen: list[int] = []
    handle = lambda _, change: seen.append(change.seq_nr)  # noqa: E731 - two projections share it
    with pytest.raises(DamagedRecordError):
        journals.project(Projection("p", handle, [TOPIC]), database=view).run(once=True)
    met: list[DamagedRecordError] = []
    journals.project(Projection("p", handle, [TOPIC], on_damaged=met.append), database=view).run(once=True)
    assert list(journals.subscribe(TOPIC, idle_seconds=0, on_damaged=met.append)) == []
    assert (seen, [error.offset for error in met]) == ([], [met[0].offset, met[1].offset] * 2)


def test_another_process_that_has_read_a_key_forgets_it_after_a_minute(journals: MemoryJournals, url: str) -> None:
    now = [0.0]
    journal = journals.journal(ID)
    journal.append([Event(1, SECRET)])
    [record] = retained(journals)
    reader = JournalKeys(url, clock=lambda: now[0])
    assert reader.open_event(ID, record).event.payload == SECRET
    journal.purge()
    now[0] = CACHE_SECONDS
    with pytest.raises(ShreddedError):
        reader.open_event(ID, record)
    reader.close()


def test_a_life_without_a_name_is_refused(journals: MemoryJournals) -> None:
    with pytest.raises(ConfigurationError, match="is in a life without a name"):
        keys_of(journals).take(ID, None, journals.journal(ID).mark())


def test_the_setting_opens_the_keys_and_names_the_extra_where_it_is_missing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.load(
        None,
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        database={"url": "postgresql+psycopg://127.0.0.1:1/none"},
        journal={"head_cache": False, "keys": url},
    )
    with Journals(settings) as journals:
        assert journals.keys is not None
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigurationError, match=r"which needs the package cryptography.*inorder\[crypto\]"):
        JournalKeys(url)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(["", "take", "send", "keep"])),
    st.tuples(st.just("purge"), st.sampled_from(["", "shred"])),
    st.tuples(st.just("purge first"), st.just("")),
)
"""What a process does, and after or before which step it dies."""


class History:
    """Processes that append and purge, one inside another, and may die at each step."""

    def __init__(self, path: Path, regime: Regime) -> None:
        self.journals = MemoryJournals(regime=regime, keys=f"sqlite:///{path / 'keys.db'}")
        self.keys = keys_of(self.journals)
        self.journal = self.journals.journal(ID)
        self.lives: list[UUID] = []
        self.count = 0

    def run(self, steps: list[tuple[str, str]]) -> None:
        """The first step, and all others in its middle."""
        (what, dies), *inner = steps
        with pytest.MonkeyPatch.context() as patched, suppress(Crash):
            original, done = self.keys.take, list[int]()

            def take(*arguments: Any) -> DataKey:
                taken = original(*arguments)
                if not done:
                    done.append(1)
                    if inner:
                        self.run(inner)
                    if dies == "take":
                        raise Crash
                return taken

            patched.setattr(self.keys, "take", take)
            if dies in ("keep", "shred"):
                patched.setattr(self.keys, dies, crash)
            if dies == "send":
                patched.setattr(self.journals.log, "send", partial(self._die_after_send, self.journals.log.send))
            self._do(what)
        if what != "append" and inner:
            self.run(inner)

    def _die_after_send(self, send: Callable[[Any], Any], record: Any) -> Any:
        sent = send(record)
        if record.value is not None:
            raise Crash
        return sent

    def _do(self, what: str) -> None:
        if what == "append":
            self.count += 1
            name = f"event {self.count}"
            life = self.journal.life()
            if life is not None and life not in self.lives:
                self.lives.append(life)
            self.journal.append([Event((self.journal.pointer() or 0) + 1, name)])
        elif what == "purge":
            self.journal.purge()
        elif self.lives:
            self.journal.purge(life=self.lives[0])

    def check(self) -> None:
        """What is in the journal can be opened; after a purge that completes, nothing that was in the log before."""
        self.keys.close()
        visible = payloads(self.journal)
        assert all(isinstance(each, str) and each.startswith("event") for each in visible)
        self.journal.purge()
        for record in retained(self.journals):
            with pytest.raises(ShreddedError):
                self.keys.open_event(ID, record)


@examples(150)
@given(
    groups=st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=1, max_size=4),
    regime=st.sampled_from([IN_STEP, NEVER, Regime("behind", 2, 1)]),
)
def test_whatever_dies_or_comes_between_what_counts_opens_and_what_is_purged_does_not(
    groups: list[list[tuple[str, str]]], regime: Regime, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = History(tmp_path_factory.mktemp("keys"), regime)
    for steps in groups:
        history.run(steps)
    history.check()
    history.journals.close()
