"""A subscription shows every event of a topic once, from the store or from the log, wherever it is taken up again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Delete, Purge
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.stores.ports import JournalHead
from inorder.journal.subscription import Checkpoint, PartialRecord, StoreScan, Subscribed, scan_store
from inorder.model.errors import (
    DamagedRecordError,
    RecordsLostError,
    ValidationError,
)
from inorder.model.journal import Key
from inorder.model.message import Record
from inorder.testing.memory_journal import MemoryJournalStore
from tests.conftest import Eventually
from tests.unit.journal.subscribing import IDS, TOPIC, Topic, named


def test_an_empty_topic_has_nothing_to_show() -> None:
    assert Topic().shown() == []


@pytest.mark.parametrize("behind", [0, 1, 3, 99], ids="the store is {} behind".format)
def test_every_event_comes_once_from_store_or_log(behind: int) -> None:
    topic = Topic(1)
    topic.append("b", 1, 2)
    topic.append("a", 1)
    topic.append("b", 3)
    topic.append("a", 2, 3)
    topic.replicate(behind=behind)
    assert sorted(topic.shown()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]


def test_the_store_shows_journals_in_the_order_of_their_ids_and_the_log_in_its_own() -> None:
    topic = Topic(1)
    for id in ("b", "c", "a"):
        topic.append(id, 1)
    topic.replicate()
    topic.append("c", 2)
    topic.append("a", 2)
    assert topic.shown() == [("a", 1), ("b", 1), ("c", 1), ("c", 2), ("a", 2)]


def test_what_is_replicated_during_the_walk_comes_from_the_log_and_once() -> None:
    topic = Topic(1)
    topic.append("a", 1)
    topic.append("b", 1)
    topic.replicate()
    events = iter(topic.subscribe(idle_seconds=0.5))
    first = next(events)
    topic.append("b", 2)
    topic.append("c", 1)
    topic.replicate()
    assert named([first, *events]) == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


def test_a_checkpoint_in_the_middle_of_an_append_gives_the_rest_of_it() -> None:
    topic = Topic(1)
    topic.append("a", 1, 2, 3)
    second = list(topic.subscribe())[1]
    assert second.checkpoint == {"topic": TOPIC, "done": {}, "begun": {"0": {"offset": 0, "seq_nr": 2}}}
    assert topic.shown(second.checkpoint) == [("a", 3)]


def test_a_checkpoint_in_the_middle_of_the_walk_ends_where_that_walk_would_have_ended() -> None:
    topic = Topic(1)
    topic.append("a", 1, 2)
    topic.append("b", 1)
    topic.replicate()
    first = next(iter(topic.subscribe()))
    assert first.checkpoint["walk"] == {"to": {"0": 1}, "id": "a", "seq_nr": 1}
    topic.append("a", 3)
    topic.replicate()
    assert topic.shown(first.checkpoint) == [("a", 2), ("b", 1), ("a", 3)]


def test_two_partitions_can_both_be_in_the_middle_of_an_append() -> None:
    topic = Topic(2)
    ids = {topic.log.partition_of(TOPIC, id.encode()): id for id in IDS}
    topic.append(ids[0], 1, 2)
    topic.append(ids[1], 1, 2)
    at = Checkpoint(TOPIC, {}, {0: PartialRecord(0, 1)})
    in_both = next(each for each in topic.subscribe(at.to_json()) if each.key.id == ids[1])
    assert sorted(topic.shown(in_both.checkpoint)) == sorted(
        [(ids[1], 2), *([(ids[0], 2)] if 0 in in_both.position.begun else [])]
    )


class TestForks:
    """Events that do not count are left out, whether the store or the log shows that they do not."""

    def test_one_that_is_seen_on_the_log(self) -> None:
        topic = Topic(1)
        for seq_nrs in ([1, 2], [2, 3], [3]):
            topic.append("a", *seq_nrs)
        assert topic.shown() == [("a", 1), ("a", 2), ("a", 3)]
        assert [fork.record.seq_nr for fork in topic.forks] == [2, 3]
        assert [(fork.record.offset, fork.record.seq_nr) for fork in topic.forks] == [(1, 2), (1, 3)]

    def test_one_whose_journal_is_known_to_the_store_only(self) -> None:
        topic = Topic(1)
        topic.append("a", 1, 2)
        topic.replicate()
        at = list(topic.subscribe())[-1].checkpoint
        topic.append("a", 2)
        topic.append("a", 3)
        assert topic.shown(at) == [("a", 3)]

    def test_one_that_the_store_has_passed_when_the_subscription_comes_to_it(self) -> None:
        topic = Topic(1)
        topic.append("a", 1, 2)
        at = list(topic.subscribe())[-1].checkpoint
        topic.append("a", 2)
        topic.append("a", 2, 3)
        topic.append("a", 2, 3, is_legacy=True)
        topic.append("a", 4)
        topic.replicate()
        assert topic.shown(at) == [("a", 3), ("a", 4)]

    def test_one_after_a_start_when_replication_is_down(self) -> None:
        topic = Topic(1)
        topic.append("a", 1, 2)
        topic.append("b", 1)
        at = list(topic.subscribe())[-1].checkpoint
        topic.append("a", 2)
        topic.append("a", 3)
        assert topic.shown(at) == [("a", 3)]

    def test_one_whose_journal_was_forgotten_meanwhile(self) -> None:
        topic = Topic(1)
        topic.append("a", 1, 2)
        for number in range(5):
            topic.append(f"other {number}", 1)
        topic.append("a", 2)
        topic.append("a", 3)
        shown = topic.shown(max_journals=2)
        assert [seq_nr for id, seq_nr in shown if id == "a"] == [1, 2, 3]
        assert len(topic.forks) == 1

    def test_a_journal_that_begins_again_after_a_purge_is_none(self) -> None:
        topic = Topic(1)
        topic.append("a", 1, 2)
        topic.act("a", Purge())
        topic.append("a", 1)
        assert topic.shown() == [("a", 1), ("a", 2), ("a", 1)]
        topic.replicate()
        assert topic.shown() == [("a", 1)]


@pytest.mark.parametrize("behind", [999, 60, 5], ids="the store is {} behind".format)
def test_many_journals_that_are_not_replicated_are_remembered_and_the_log_is_read_once(behind: int) -> None:
    topic, ids = Topic(2), [f"journal {number}" for number in range(40)]
    for number in (1, 2, 3):
        for id in ids:
            topic.append(id, number)
        topic.append(ids[0], number)
    topic.replicate(behind=behind)
    assert sorted(topic.shown(max_journals=5)) == sorted((id, number) for id in ids for number in (1, 2, 3))
    assert len(topic.forks) == 3 or behind != 999
    assert topic.log.windows == []


def test_what_is_deleted_or_purged_before_it_is_come_to_is_left_out_if_the_store_knows() -> None:
    topic = Topic(1)
    topic.append("a", 1, 2)
    topic.append("b", 1)
    topic.act("a", Delete(1))
    topic.act("b", Purge())
    assert topic.shown() == [("a", 1), ("a", 2), ("b", 1)]
    topic.replicate()
    assert topic.shown() == [("a", 2)]


def test_a_checkpoint_that_retention_has_passed_goes_on_in_the_store() -> None:
    topic = Topic(1)
    topic.append("a", 1, 2)
    topic.append("b", 1)
    at = next(iter(topic.subscribe())).checkpoint
    topic.append("a", 3)
    topic.replicate()
    topic.forget(0)
    topic.append("c", 1)
    assert topic.shown(at) == [("a", 2), ("a", 3), ("b", 1), ("c", 1)]


def test_what_retention_took_before_it_was_replicated_is_an_error_and_not_silence() -> None:
    topic = Topic(2)
    for id in IDS:
        topic.append(id, 1)
    topic.replicate(1)
    topic.log.forget(TOPIC, 0, 1)
    subscription = topic.subscribe()
    with pytest.raises(RecordsLostError):
        list(subscription)


class TestDamagedRecords:
    """A record that cannot be read is an error at its offset, or skipped if there is a callback."""

    @pytest.fixture
    def topic(self) -> Topic:
        topic = Topic(1)
        topic.append("a", 1)
        topic.log.write(Record(TOPIC, b"b", b"", ((ACTION_HEADER, b'{"append":{"range":'),), None, 1), 0)
        topic.append("a", 2)
        return topic

    def test_what_comes_before_it_is_shown_then_it_is_raised_with_its_coordinates(self, topic: Topic) -> None:
        events = iter(topic.subscribe())
        assert next(events).record.seq_nr == 1
        with pytest.raises(DamagedRecordError, match=r"journal\[0\] offset 1 of key b'b'"):
            next(events)

    def test_who_wants_to_be_told_gets_all_the_rest(self, topic: Topic) -> None:
        damaged: list[DamagedRecordError] = []
        assert topic.shown(on_damaged=damaged.append) == [("a", 1), ("a", 2)]
        assert [error.offset for error in damaged] == [1]


class ParkingStore(MemoryJournalStore):
    """A store that has parked a journal."""

    def pointer(self, key: Key) -> JournalHead | None:
        if self.parks and key.id == "b":
            raise DamagedRecordError(f"{key} is parked.", topic=key.topic, partition=0, offset=1)
        return super().pointer(key)

    parks = False


class TestParkedJournals:
    """A journal that the store cannot read is an error, or skipped if there is a callback."""

    @pytest.fixture
    def topic(self) -> Topic:
        store = ParkingStore()
        topic = Topic(1, store)
        for id in "abc":
            topic.append(id, 1)
        topic.replicate()
        store.parks = True
        topic.append("b", 2)
        topic.append("c", 2)
        return topic

    def test_it_is_raised_after_what_comes_before_it(self, topic: Topic) -> None:
        events = iter(topic.subscribe())
        assert named([next(events)]) == [("a", 1)]
        with pytest.raises(DamagedRecordError, match="journal:b is parked"):
            next(events)

    def test_who_wants_to_be_told_gets_all_other_journals(self, topic: Topic) -> None:
        damaged: list[DamagedRecordError] = []
        assert topic.shown(on_damaged=damaged.append) == [("a", 1), ("c", 1), ("c", 2)]
        assert len(damaged) == 2


@pytest.mark.parametrize(
    "value",
    [[], "1", {}, {"topic": TOPIC}, {"topic": TOPIC, "done": {"0": "x"}}, {"topic": TOPIC, "done": {"0": -1}}],
    ids=repr,
)
def test_what_is_no_checkpoint_is_refused_before_anything_is_asked(value: Any) -> None:
    with pytest.raises(ValidationError, match="checkpoint: "):
        Topic().subscribe(value)


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    with pytest.raises(ValidationError, match="it is of topic 'orders', not of 'journal'"):
        Topic().subscribe(Checkpoint("orders").to_json())


@given(
    st.builds(
        Checkpoint,
        st.just(TOPIC),
        st.dictionaries(st.integers(0, 9), st.integers(0, 9)),
        st.dictionaries(st.integers(0, 9), st.builds(PartialRecord, st.integers(0, 9), st.integers(1, 9))),
        st.none()
        | st.builds(StoreScan, st.dictionaries(st.integers(0, 9), st.integers(0, 9)), st.text(), st.integers(0)),
    )
)
def test_a_checkpoint_survives_json(checkpoint: Checkpoint) -> None:
    assert Checkpoint.from_json(checkpoint.to_json(), TOPIC) == checkpoint


def test_a_walk_takes_ids_some_at_a_time() -> None:
    topic = Topic(1)
    for id in "hagbfced":
        topic.append(id, 1)
    topic.replicate()
    walked = scan_store(
        topic.store, Checkpoint(TOPIC, scan=StoreScan({0: 7})), lambda error: pytest.fail(str(error)), ids_at_once=3
    )
    assert [each.key.id for each in walked if each.record] == list("abcdefgh")


def test_it_waits_for_events_until_it_is_closed(eventually: Eventually) -> None:
    topic = Topic(1)
    seen: list[Subscribed] = []
    with topic.subscribe(idle_seconds=None) as subscription:
        thread = threading.Thread(target=lambda: seen.extend(subscription), daemon=True)
        thread.start()
        topic.append("a", 1)
        eventually(lambda: named(seen) == [("a", 1)])
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()
