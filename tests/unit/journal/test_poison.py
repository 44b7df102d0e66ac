"""A poison record parks its own journal, whatever is wrong with it: it stops neither the replicator nor a reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from inorder.journal.action import parse_duration
from inorder.journal.codec import action_of, events_of, is_of_record, parse_json
from inorder.journal.replication import transition
from inorder.journal.replication.job import release
from inorder.journal.replication.store_port import JournalChange
from inorder.journal.replication.transition import Change
from inorder.journal.stores.ports import JournalHead, LogRecord
from inorder.journal.stores.rows import header_column, quarantined_of, reason_column, time_column
from inorder.model.errors import DamagedRecordError, RejectedError, TransientError, ValidationError
from inorder.model.message import Record
from inorder.testing.memory_journal import MemoryJournalLog
from tests.fakes import replica
from tests.unit.journal.poison import POISONS, nested
from tests.unit.journal.replicated_topic import TOPIC, Topic, key
from tests.unit.journal.test_replicating import World
from tests.unit.journal.world import World as ReaderWorld

Poison = Callable[[Record], Record]


@pytest.fixture(params=POISONS)
def poison(request: pytest.FixtureRequest) -> Poison:
    return POISONS[request.param]


def test_it_parks_its_own_journal_and_all_others_go_on(poison: Poison) -> None:
    world = World()
    world.topic.append("a", 1)
    world.topic.append("a", 2)
    world.topic.records.append(poison(world.topic.records.pop()))
    world.topic.append("b", 1)
    world.topic.append("a", 3)
    world.flush()
    assert (world.numbers("b"), world.store.offset(TOPIC, 0)) == ([1], 3)
    first, *rest = world.store.quarantined()
    assert (first.offset, {each.key for each in rest}) == (1, {first.key} if rest else set())
    assert first.reason
    assert "\n" not in first.reason
    kept = quarantined_of(
        TOPIC, first.key.id, 0, reason_column(first), 1, time_column(first.record), *first.record[2:4],
        header_column(first.record),
    )  # fmt: skip
    assert kept.record == first.record, "it is kept as it came"
    assert len(reason_column(first).encode()) < 5_000
    with pytest.raises((DamagedRecordError, RejectedError)):
        release(world.store, first.key, 3)


def test_a_reader_of_the_log_is_told_and_other_journals_are_read(poison: Poison) -> None:
    topic = Topic()
    topic.append("a", 1)
    topic.append("a", 2)
    topic.records.append(poison(topic.records.pop()))
    topic.append("b", 1)
    log = MemoryJournalLog()
    log._records[TOPIC, 0] = [
        LogRecord(offset, each.timestamp_ms, each.key, each.value, each.headers)
        for offset, each in enumerate(topic.records)
    ]
    world = ReaderWorld(log=log)
    if topic.records[1].key == b"a":
        with pytest.raises(DamagedRecordError) as raised:
            list(world.journals.journal(key("a")).read())
        assert raised.value.offset == 1
    else:  # no one can name its journal
        assert [each.seq_nr for each in world.journals.journal(key("a")).read()] == [1]
    assert [each.seq_nr for each in world.journals.journal(key("b")).read()] == [1]


def test_json_nested_as_deep_as_a_store_writes_is_read() -> None:
    assert parse_json(nested(254))
    with pytest.raises(ValueError, match="nested"):
        parse_json(nested(255))
    many = b"[" + b",".join([b"[{}]"] * 1_000) + b"]"
    assert parse_json(many) == [[{}]] * 1_000
    assert parse_json(b'["\\ud800",' + many + b"]") == ["\ud800", [[{}]] * 1_000]


def test_a_duration_is_bounded_before_it_is_multiplied() -> None:
    with pytest.raises(ValueError, match="characters more"):
        parse_duration("0." + "3" * 10_000_000 + " days")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RecursionError(), True),
        (KeyError("x"), True),
        (ValidationError("value", "NaN"), True),
        (RejectedError("too long"), True),
        (TransientError("gone"), False),
        (MemoryError(), False),
        (ConnectionResetError(), False),
    ],
    ids=repr,
)
def test_an_error_of_the_machine_is_no_records_fault(error: Exception, expected: bool) -> None:
    assert is_of_record(error) is expected


class TestErrorsThatNoOneExpected:
    def test_one_while_folding_is_narrowed_down_to_its_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        append = transition.append

        def fail(head: JournalHead | None, *args: object, **kwargs: object) -> Change:
            if any(event.seq_nr == 3 for event in args[1]):  # type: ignore[attr-defined]
                raise RuntimeError("a fault\nof two lines")
            return append(head, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(transition, "append", fail)
        world = World()
        for number in range(1, 5):
            world.topic.append("a", number)
        world.topic.append("b", 1)
        world.flush()
        assert [each.offset for each in world.store.quarantined()] == [2, 3]
        assert "of two lines" in world.store.quarantined()[0].reason
        assert world.numbers("b") == [1]
        head = world.store.head(key("a"))
        assert head is not None
        assert head.seq_nr == 2

    def test_one_while_writing_is_narrowed_down_to_its_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        carry_out = replica._Slice.carry_out

        def fail(writing: replica._Slice, changes: Sequence[JournalChange]) -> None:
            for change in changes:
                for _, statement in change.statements:
                    if isinstance(statement, transition.InsertEvents) and statement.events[-1].seq_nr >= 3:
                        raise ZeroDivisionError("a fault")
            carry_out(writing, changes)

        monkeypatch.setattr(replica._Slice, "carry_out", fail)
        world = World()
        for number in range(1, 5):
            world.topic.append("a", number)
        world.topic.append("b", 1)
        world.flush()
        found = world.store.quarantined()
        assert [each.offset for each in found] == [2, 3]
        assert found[0].reason == "ZeroDivisionError: a fault"
        assert world.numbers("b") == [1]

    def test_one_while_decoding_is_the_records_damage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(value: bytes) -> None:
            raise AttributeError(f"a fault with {value!r}")

        world = World()
        world.topic.append("a", 1)
        each = world.topic.records[0]
        record = LogRecord(0, each.timestamp_ms, each.key, each.value, each.headers)
        action = action_of(record, TOPIC, 0)
        monkeypatch.setattr("inorder.journal.codec.parse_json", fail)
        with pytest.raises(DamagedRecordError, match="AttributeError: a fault"):
            action_of(record, TOPIC, 0)
        with pytest.raises(DamagedRecordError, match="AttributeError: a fault"):
            events_of(action, record, TOPIC, 0)  # type: ignore[arg-type]

    def test_one_of_the_machine_parks_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise MemoryError

        world = World()
        world.topic.append("a", 1)
        monkeypatch.setattr(replica._Slice, "carry_out", fail)
        with pytest.raises(MemoryError):
            world.flush()
        assert world.store.quarantined() == []
