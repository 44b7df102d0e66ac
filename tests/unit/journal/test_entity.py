"""Entities: what an update is based on, what it appends, and what it leaves alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.entity import (
    SEND_ATTEMPTS,
    DecideAgain,
    Entity,
    Raise,
    SendAgain,
    Updated,
    after_conflict,
    after_failed_append,
    is_snapshot_due,
    recover_state,
)
from inorder.model.errors import (
    ConfigurationError,
    DeadlineError,
    JournalChangedError,
    SeqNrConflictError,
    SnapshotTooOldError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UpdateConflictError,
    ValidationError,
)
from inorder.model.journal import Event, PartitionOffset, Payload
from inorder.model.message import Record
from inorder.testing import AsyncMemoryJournals, MemoryJournals, Regime
from inorder.testing.memory_journal import IN_STEP, NEVER, MemoryJournalLog
from tests.selection import examples
from tests.unit.journal.world import KEY


@dataclass(frozen=True)
class Account:
    balance: Decimal = Decimal(0)
    changes: int = 0


def apply(account: Account, event: dict[str, Any]) -> Account:
    return Account(account.balance + Decimal(event["by"]), account.changes + 1)


ACCOUNT = Entity(Account(), apply)
EVERY_THIRD = replace(ACCOUNT, snapshot_every=3)


def change(by: int) -> Callable[[Account], list[dict[str, Any]] | None]:
    """A change that is refused where it would overdraw the account, and says on which balance it was decided."""
    return lambda account: None if account.balance + by < 0 else [{"by": by, "on": str(account.balance)}]


def payloads(journals: MemoryJournals) -> list[Any]:
    return [record.event.payload for record in journals.journal(KEY).read()]


def once(journals: MemoryJournals, act: Callable[[], object]) -> Callable[[Account], list[dict[str, Any]]]:
    """A decision during which something else happens, the first time."""
    pending = [act]

    def decide(account: Account) -> list[dict[str, Any]]:
        if pending:
            pending.pop()()
        return [{"by": 1, "on": str(account.balance)}]

    return decide


@pytest.fixture(params=[IN_STEP, NEVER, Regime("behind", 2, 1)], ids=lambda regime: regime.name)
def journals(request: pytest.FixtureRequest) -> MemoryJournals:
    return MemoryJournals(regime=request.param)


class TestUpdate:
    def test_it_appends_what_was_decided_and_returns_the_state_after_it(self, journals: MemoryJournals) -> None:
        first = journals.update(KEY, ACCOUNT, change(5))
        assert (first.state, first.seq_nr, first.events) == (Account(Decimal(5), 1), 1, ({"by": 5, "on": "0"},))
        both = journals.update(KEY, ACCOUNT, lambda _: [{"by": -2}, {"by": -1}])
        assert (both.state, both.seq_nr, len(both.events), both.attempts) == (Account(Decimal(2), 3), 3, 2, 1)
        [*_, last] = journals.journal(KEY).read()
        assert (last.seq_nr, last.partition_offset) == (3, both.place)
        assert journals.state(KEY, ACCOUNT) == both.state

    @pytest.mark.parametrize("nothing", [None, (), []])
    def test_no_event_writes_nothing(self, journals: MemoryJournals, nothing: Any) -> None:
        assert journals.update(KEY, ACCOUNT, lambda _: nothing) == Updated(Account(), 0)
        assert journals.journal(KEY).pointer() is None
        journals.update(KEY, ACCOUNT, change(5))
        assert journals.update(KEY, ACCOUNT, change(-6)) == Updated(Account(Decimal(5), 1), 1)

    def test_tags_and_the_rest_of_an_append_are_written(self, journals: MemoryJournals) -> None:
        tagged = replace(ACCOUNT, tags=lambda event: ["large"] if event["by"] > 9 else [])
        journals.update(KEY, tagged, lambda _: [{"by": 1}, {"by": 10}], metadata={"who": "me"}, headers={"a": "b"})
        found = list(journals.journal(KEY).read())
        assert [record.event.tags for record in found] == [frozenset(), frozenset({"large"})]
        assert (found[0].metadata.header, found[0].headers) == ({"who": "me"}, {"a": "b"})

    def test_the_state_is_what_a_recovery_finds_though_json_knows_no_tuples(self, journals: MemoryJournals) -> None:
        last: Entity[Any] = Entity(None, lambda _, event: event)
        done = journals.update(KEY, last, lambda _: [{"pair": (1, 2)}])
        assert done.state == journals.state(KEY, last) == {"pair": [1, 2]}

    def test_a_state_that_is_changed_in_place_does_not_change_the_entity(self, journals: MemoryJournals) -> None:
        def add(state: list[Any], event: Any) -> list[Any]:
            state.append(event)
            return state

        collected: Entity[list[Any]] = Entity([], add)
        for number in range(3):
            assert journals.update(KEY, collected, lambda state: [len(state)]).state == list(range(number + 1))
        assert collected.initial == []

    def test_errors_of_the_application_are_raised_and_nothing_is_written(self, journals: MemoryJournals) -> None:
        with pytest.raises(ZeroDivisionError):
            journals.update(KEY, ACCOUNT, lambda _: [1 // 0])
        with pytest.raises(KeyError):
            journals.update(KEY, ACCOUNT, lambda _: [{"by": 1}, {"amount": 1}])
        with pytest.raises(ValidationError, match="it returned one dict, not events"):
            journals.update(KEY, ACCOUNT, lambda _: {"by": 1})
        unwritable: Entity[Any] = Entity(object(), lambda state, _: state, snapshot_every=1)
        with pytest.raises(ConfigurationError, match="cannot be written as JSON"):
            journals.update(KEY, unwritable, lambda _: [1])
        assert journals.journal(KEY).pointer() is None

    def test_wrong_options_are_refused(self, journals: MemoryJournals) -> None:
        with pytest.raises(ValidationError, match="snapshot_every"):
            replace(ACCOUNT, snapshot_every=0)
        with pytest.raises(ConfigurationError, match="encode_state"):
            replace(ACCOUNT, encode_state=lambda _: None)
        with pytest.raises(ValidationError, match="attempts"):
            journals.update(KEY, ACCOUNT, change(1), attempts=0)


class TestOthers:
    """What other writers do between recovery and append."""

    def test_a_decision_that_another_writer_overtook_is_made_again(
        self, journals: MemoryJournals, caplog: pytest.LogCaptureFixture
    ) -> None:
        journals.update(KEY, ACCOUNT, change(5))
        done = journals.update(KEY, ACCOUNT, once(journals, lambda: journals.update(KEY, ACCOUNT, change(-4))))
        assert (done.state, done.attempts) == (Account(Decimal(2), 3), 2)
        assert [each["on"] for each in payloads(journals)] == ["0", "5", "1"]
        assert caplog.records == []  # it is no fork

    def test_a_purge_in_between_is_noticed_even_if_the_number_is_the_same(self, journals: MemoryJournals) -> None:
        def purge_and_open() -> None:
            journals.journal(KEY).purge()
            journals.update(KEY, ACCOUNT, change(100))

        journals.update(KEY, ACCOUNT, change(5))
        done = journals.update(KEY, ACCOUNT, once(journals, purge_and_open))
        assert (done.state, done.attempts) == (Account(Decimal(101), 2), 2)
        assert [each["on"] for each in payloads(journals)] == ["0", "100"]

    def test_a_purge_in_between_leaves_a_new_journal(self, journals: MemoryJournals) -> None:
        journals.update(KEY, ACCOUNT, change(5))
        done = journals.update(KEY, ACCOUNT, once(journals, lambda: journals.journal(KEY).purge()))
        assert (done.seq_nr, payloads(journals)) == (1, [{"by": 1, "on": "0"}])

    def test_when_attempts_are_used_up_nothing_is_appended(self, journals: MemoryJournals) -> None:
        def rival(_: Account) -> list[dict[str, Any]]:
            journals.update(KEY, ACCOUNT, change(1))
            return [{"by": 1000}]

        with pytest.raises(UpdateConflictError, match=r"journal:account-1 was changed .* each of 3 attempts") as caught:
            journals.update(KEY, ACCOUNT, rival, attempts=3)
        assert caught.value.attempts == 3
        assert isinstance(caught.value.__cause__, SeqNrConflictError)
        assert journals.state(KEY, ACCOUNT) == Account(Decimal(3), 3)

    def test_a_journal_that_is_truncated_while_it_is_recovered_is_recovered_again(
        self, journals: MemoryJournals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journals.update(KEY, ACCOUNT, change(5))
        recover, failures = type(journals.journal(KEY)).recover, [1, 2]

        def fail(journal: Any, *criteria: Any) -> Any:
            if failures:
                raise JournalChangedError(f"failure {failures.pop()}")
            return recover(journal, *criteria)

        monkeypatch.setattr(type(journals.journal(KEY)), "recover", fail)
        assert journals.update(KEY, ACCOUNT, change(1)).attempts == 3

    def test_threads_that_update_one_account_lose_and_double_nothing(self, journals: MemoryJournals) -> None:
        def work(number: int) -> int:
            return sum(
                len(journals.update(KEY, EVERY_THIRD, change(by), attempts=100).events) and by
                for by in (number, -3, 2, -number)
            )

        with ThreadPoolExecutor(4) as pool:
            total = sum(pool.map(work, range(1, 9)))
        balance = 0
        for each in payloads(journals):
            assert each["on"] == str(balance)
            balance += each["by"]
            assert balance >= 0
        assert balance == total == journals.state(KEY, EVERY_THIRD).balance


class FaultyLog(MemoryJournalLog):
    """Loses answers to appends: `lost` of them, after it wrote the record, or instead (`drops`)."""

    lost = 0
    drops = False
    error: Exception = TransientError("the broker is away")

    def send(self, record: Record) -> Future[PartitionOffset]:
        is_append = any((value or b"").startswith(b'{"append"') for _, value in record.headers)
        if not is_append or not self.lost:
            return super().send(record)
        self.lost -= 1
        if not self.drops:
            super().send(record)
        unanswered: Future[PartitionOffset] = Future()
        unanswered.set_exception(self.error)
        return unanswered


class TestLostAnswers:
    @pytest.mark.parametrize("drops", [False, True])
    @pytest.mark.parametrize("error", [TransientError("away"), TimeoutError()], ids=["refused", "timed out"])
    @pytest.mark.parametrize("lost", [1, 2])
    def test_an_append_without_an_answer_counts_once(self, drops: bool, error: Exception, lost: int) -> None:
        log = FaultyLog()
        journals = MemoryJournals(log=log, regime=NEVER)
        journals.update(KEY, ACCOUNT, change(5))
        log.drops, log.error, log.lost = drops, error, lost
        done = journals.update(KEY, EVERY_THIRD, change(1))
        assert (done.state, done.attempts) == (Account(Decimal(6), 2), 1)
        [_, only] = journals.journal(KEY).read()
        assert only.partition_offset == done.place

    def test_an_outcome_that_stays_unknown_is_raised(self) -> None:
        log = FaultyLog()
        journals = MemoryJournals(log=log)
        log.lost = SEND_ATTEMPTS
        with pytest.raises(UnknownOutcomeError, match="The events may count"):
            journals.update(KEY, ACCOUNT, change(5))
        assert journals.state(KEY, ACCOUNT) == Account(Decimal(5), 1)

    def test_a_first_answer_that_is_lost_and_a_purge_do_not_mix_lives(self) -> None:
        """The append counted, the purge removed it, and the next life must not get its snapshot."""
        log = FaultyLog()
        journals = MemoryJournals(log=log)
        journals.update(KEY, ACCOUNT, lambda _: [{"by": 5}, {"by": 5}])
        log.lost, sent = 1, log.on_sent

        def purge(topic: str, partition: int) -> None:
            sent(topic, partition)
            if log.lost == 0:
                log.on_sent = sent
                journals.journal(KEY).purge()
                journals.update(KEY, ACCOUNT, lambda _: [{"by": 1}] * 3)

        log.on_sent = purge
        done = journals.update(KEY, EVERY_THIRD, change(1))
        assert (done.seq_nr, done.state) == (3, Account(Decimal(11), 3))
        assert journals.journal(KEY).snapshots() == []
        assert journals.state(KEY, EVERY_THIRD) == Account(Decimal(3), 3)

    def test_what_cannot_be_read_back_is_an_unknown_outcome(self, monkeypatch: pytest.MonkeyPatch) -> None:
        journals = MemoryJournals(regime=NEVER)
        journal = journals.journal(KEY)
        monkeypatch.setattr(journal, "_judge", lambda *_: (_ for _ in ()).throw(DeadlineError("Reading timed out")))
        with pytest.raises(UnknownOutcomeError, match=r"is written at 0:1; whether it counts is not known.*append_id"):
            journal.append([Event(1)], expected_seq_nr=0)


class TestSnapshots:
    def test_it_is_saved_after_so_many_events_and_recovered_from(self, journals: MemoryJournals) -> None:
        journal, saved = journals.journal(KEY), []
        for _ in range(8):
            journals.update(KEY, EVERY_THIRD, change(2))
            saved.append([each.seq_nr for each in journal.snapshots()])
        assert saved == [[], [], [3], [3], [3], [6, 3], [6, 3], [6, 3]]
        assert (snapshot := journal.snapshot()) is not None
        assert (snapshot.payload, snapshot.metadata) == ({"balance": "12", "changes": 6}, {"state_version": 1})
        journal.delete(6)
        assert journals.state(KEY, EVERY_THIRD) == journals.state(KEY, ACCOUNT) == Account(Decimal(16), 8)

    def test_a_snapshot_that_cannot_be_saved_costs_nothing_but_itself(
        self, journals: MemoryJournals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert journals.snapshot_history is not None
        with monkeypatch.context() as broken:
            failing = lambda *_: (_ for _ in ()).throw(TransientError("the store is away"))  # noqa: E731 - two lines
            broken.setattr(journals.snapshot_history.store, "save", failing)
            for _ in range(4):
                done = journals.update(KEY, EVERY_THIRD, change(1))
        assert (done.seq_nr, journals.journal(KEY).snapshots()) == (4, [])
        assert [record.message for record in caplog.records] == ["journal.snapshot_not_saved"] * 2
        journals.update(KEY, EVERY_THIRD, change(1))
        assert [each.seq_nr for each in journals.journal(KEY).snapshots()] == [5]

    def test_a_snapshot_is_never_saved_in_another_life(
        self, journals: MemoryJournals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert journals.snapshot_history is not None
        save = journals.snapshot_history.store.save

        def purge_first(*arguments: Any) -> bool:
            monkeypatch.undo()
            journals.journal(KEY).purge()
            journals.update(KEY, ACCOUNT, lambda _: [{"by": 1}] * 4)
            return save(*arguments)

        journals.update(KEY, ACCOUNT, change(100))
        monkeypatch.setattr(journals.snapshot_history.store, "save", purge_first)
        done = journals.update(KEY, EVERY_THIRD, lambda _: [{"by": 1}] * 2)
        assert (done.seq_nr, done.state) == (3, Account(Decimal(102), 3))
        assert journals.journal(KEY).snapshots() == []
        assert journals.state(KEY, EVERY_THIRD).balance == 4

    def test_the_life_is_checked_for_every_saver(self, journals: MemoryJournals) -> None:
        journal = journals.journal(KEY)
        journal.append([Event(1)])
        life = journal.life()
        assert journal.save_snapshot(1, "state", life=life) is not None
        journal.purge()
        journal.append([Event(1)])
        with pytest.raises(JournalChangedError):
            journal.save_snapshot(1, "state", life=life)
        assert journal.snapshots() == []

    @pytest.mark.parametrize("payload", [{"balance": "x"}, None, "text"])
    def test_one_of_another_version_or_form_is_ignored(self, journals: MemoryJournals, payload: Payload) -> None:
        for _ in range(4):
            journals.update(KEY, EVERY_THIRD, change(1))
        assert journals.state(KEY, replace(EVERY_THIRD, state_version=2)) == Account(Decimal(4), 4)
        journal = journals.journal(KEY)
        journal.save_snapshot(4, payload, metadata={"state_version": 1})
        assert journals.state(KEY, EVERY_THIRD) == Account(Decimal(4), 4)
        journal.delete(3)
        assert journals.state(KEY, EVERY_THIRD) == Account(Decimal(4), 4)  # from the snapshot at 3
        journal.delete(4)
        with pytest.raises(SnapshotTooOldError, match=r"at 4 cannot .* version 1, and the events up to 4 are deleted"):
            journals.state(KEY, EVERY_THIRD)

    @pytest.mark.parametrize("deleted", [0, 1, 3])
    def test_one_of_an_older_instance_does_not_hide_one_that_can_be_used(
        self, journals: MemoryJournals, deleted: int
    ) -> None:
        """As in an upgrade, while instances of both versions run."""
        journal, new = journals.journal(KEY), replace(EVERY_THIRD, state_version=2)
        journals.update(KEY, new, lambda _: [{"by": 1}] * 3)
        if deleted:
            journal.delete(deleted)
        for number in (4, 5):
            journal.append([Event(number, {"by": 1})])
            journal.save_snapshot(number, {"amount": "0"}, metadata={"state_version": 1})
        assert journals.state(KEY, new) == Account(Decimal(5), 5)
        assert recover_state(journal, new).covered == 3
        done = journals.update(KEY, new, change(1))
        assert (done.seq_nr, done.state) == (6, Account(Decimal(6), 6))
        assert recover_state(journal, new).covered == 6

    def test_an_entity_may_write_its_state_in_its_own_way(self, journals: MemoryJournals) -> None:
        own = replace(
            ACCOUNT,
            snapshot_every=1,
            encode_state=lambda account: f"{account.balance} {account.changes}".encode(),
            decode_state=lambda payload: Account(*map(Decimal, payload.split())),  # type: ignore[union-attr, arg-type]
        )
        journals.update(KEY, own, change(7))
        assert (found := journals.journal(KEY).snapshot()) is not None
        assert (found.payload, journals.state(KEY, own)) == (b"7 1", Account(Decimal(7), 1))

    def test_a_state_that_begins_as_none_names_its_type(self, journals: MemoryJournals) -> None:
        order: Entity[Account | None] = Entity(
            None, lambda state, event: apply(state or Account(), event), snapshot_every=1, state_type=Account | None
        )
        journals.update(KEY, order, lambda _: [{"by": 1}])
        assert journals.state(KEY, order) == Account(Decimal(1), 1)
        assert len(journals.journal(KEY).snapshots()) == 1


class TestAsync:
    def test_decisions_may_be_coroutines_and_are_made_in_the_loop(self) -> None:
        threads: set[int] = set()

        async def run() -> None:
            async with AsyncMemoryJournals() as journals:

                async def decide(account: Account) -> list[dict[str, Any]]:
                    threads.add(threading.get_ident())
                    await asyncio.sleep(0)
                    return [{"by": 1, "on": str(account.balance)}]

                await asyncio.gather(*(journals.update(KEY, EVERY_THIRD, decide, attempts=100) for _ in range(8)))
                await journals.update(KEY, ACCOUNT, change(5))
                assert await journals.state(KEY, ACCOUNT) == Account(Decimal(13), 9)
                assert [each["on"] for each in payloads(journals.journals)] == [str(n) for n in range(9)]

                def rival(_: Account) -> list[dict[str, Any]]:
                    journals.journals.update(KEY, ACCOUNT, change(1))
                    return [{"by": 1}]

                with pytest.raises(UpdateConflictError):
                    await journals.update(KEY, ACCOUNT, rival, attempts=2)

        asyncio.run(run())
        assert threads == {threading.get_ident()}


class TestDecisions:
    def test_a_failed_append(self) -> None:
        conflict = SeqNrConflictError("x", expected=1, found=2)
        assert after_failed_append(conflict, 1) == after_failed_append(conflict, SEND_ATTEMPTS) == DecideAgain()
        absent = TopicUnavailableError("t", "gone")
        assert after_failed_append(absent, 1) == Raise(absent)
        for sent in range(1, SEND_ATTEMPTS):
            assert after_failed_append(DeadlineError("x"), sent) == SendAgain()
        assert isinstance(after_failed_append(DeadlineError("x"), SEND_ATTEMPTS), Raise)

    @given(st.integers(1, 50), st.floats(0, 60), st.floats(0, 1, exclude_max=True))
    def test_pauses_are_bounded_and_attempts_too(self, attempts: int, took: float, chance: float) -> None:
        step = after_conflict(KEY, attempts, attempts + 1, took, chance)
        assert isinstance(step, DecideAgain)
        assert 0 <= step.pause_seconds <= min(2.0, took * 2**attempts)
        assert isinstance(after_conflict(KEY, attempts, attempts, took, chance), Raise)

    @pytest.mark.parametrize(
        ("every", "covered", "end", "due"),
        [(None, 0, 999, False), (3, 0, 2, False), (3, 0, 3, True), (3, 3, 5, False), (3, 3, 9, True), (1, 8, 9, True)],
    )
    def test_a_snapshot_is_due(self, every: int | None, covered: int, end: int, due: bool) -> None:
        assert is_snapshot_due(replace(ACCOUNT, snapshot_every=every), covered, end) is due


Interference = tuple[str, int]
INTERFERENCES = st.lists(
    st.tuples(st.sampled_from(["update", "purge", "delete", "append", "lost", "kept"]), st.integers(-3, 5)), max_size=3
)


class Bank:
    """An account with several writers, and the model of its journal: what was added, in this life of it."""

    def __init__(self, regime: Regime, head_cache: bool) -> None:
        self.log = FaultyLog()
        self.journals = MemoryJournals(log=self.log, regime=regime, head_cache=head_cache)
        self.journal = self.journals.journal(KEY)
        self.added: list[int] = []

    @property
    def account(self) -> Account:
        return Account(Decimal(sum(self.added)), len(self.added))

    def update(self, decide: Callable[[Account], Any]) -> Updated[Account]:
        done = self.journals.update(KEY, EVERY_THIRD, decide)
        self.added += [each["by"] for each in done.events]
        return done

    def interfere(self, what: str, by: int) -> None:
        match what:
            case "update":
                self.update(change(by))
            case "append":
                self.log.lost = 0  # only updates send again
                self.journal.append([Event(len(self.added) + 1, {"by": 1})])
                self.added.append(1)
            case "purge":
                self.journal.purge()
                self.added.clear()
            case "delete":
                if (snapshot := self.journal.snapshot()) is not None:
                    self.journal.delete(snapshot.seq_nr)
            case _:
                self.log.lost, self.log.drops = 1, what == "lost"


@examples(150)
@given(
    st.lists(st.tuples(st.integers(-4, 6), INTERFERENCES), min_size=1, max_size=12),
    st.sampled_from([IN_STEP, NEVER, Regime("behind", 2, 1), Regime("the offset is behind", 0, 3)]),
    st.booleans(),
)
def test_every_decision_follows_the_state_that_it_saw(
    commands: list[tuple[int, list[Interference]]], regime: Regime, head_cache: bool
) -> None:
    """Decisions are interleaved with other writers, purges and lost answers; the journal is compared with a model."""
    bank = Bank(regime, head_cache)
    for by, interferences in commands:
        pending = list(interferences)

        def decide(account: Account, by: int = by, waiting: list[Interference] = pending) -> Any:
            assert account == bank.account
            if waiting:
                bank.interfere(*waiting.pop())
            return change(by)(account)

        done = bank.update(decide)
        bank.log.lost = 0
        assert bank.journals.state(KEY, EVERY_THIRD) == bank.account
        assert (bank.journal.pointer() or 0) == len(bank.added)
        if done.events:  # a decision for nothing was right when it was made
            assert (done.state, done.seq_nr) == (bank.account, len(bank.added))
