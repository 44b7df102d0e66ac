"""Which topic of a name it is: what is refused, how often that is asked, and what a reset writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Pointer
from inorder.engines.survey import unreadable
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.stores.ports import FORMER, TopicIncarnation
from inorder.journal.subscription import MAX_OFFSET, Checkpoint, StoreScan
from inorder.journal.topic_identity import (
    FRESH_SECONDS,
    REFUSED_SECONDS,
    TRUSTED_SECONDS,
    TopicGuard,
    find_difference,
    plan_reset,
)
from inorder.model.errors import ConfigurationError, OtherTopicError, TransientError, UnreachableError
from inorder.model.journal import PartitionOffset
from inorder.model.partitioning import Extent
from tests.fakes.replica import MemoryReplica
from tests.unit.journal.acting import record

ONE = TopicIncarnation("one", 2)
TWO = TopicIncarnation("two", 2)


@pytest.mark.parametrize(
    ("recorded", "held", "refused"),
    [
        (None, ONE, None),
        (ONE, ONE, None),
        (replace(ONE, number=3), ONE, None),
        (ONE, TWO, r"'orders' was deleted and re-created.* id one .* id two"),
        (ONE, TopicIncarnation("one", 5), "'orders' has 5 partitions, and had 2"),
        (ONE, TopicIncarnation("one", 1), "'orders' has 1 partitions, and had 2"),
        (TopicIncarnation(None, 2), ONE, None),
        (ONE, TopicIncarnation(None, 2), None),
        (ONE, TopicIncarnation(None, 3), "has 3 partitions"),
    ],
)
def test_another_id_or_number_of_partitions_is_refused(
    recorded: TopicIncarnation | None, held: TopicIncarnation, refused: str | None
) -> None:
    found = find_difference("orders", recorded, held)
    if refused is None:
        assert found is None
        return
    assert found is not None
    assert found.code == "GUARANTEE-003"
    assert "`inorder journal reset orders`" in found.hint
    with pytest.raises(OtherTopicError, match=refused):
        raise found


class Guarded:
    """A guard on a clock, a cluster and a store that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held: TopicIncarnation | Exception | None = ONE
        self.recorded: TopicIncarnation | Exception | None = ONE
        self.looks = 0
        self.changed: list[str] = []
        self.guard = TopicGuard(self._look, lambda _: _given(self.recorded), lambda: self.now, self.changed.append)

    def _look(self, topic: str) -> TopicIncarnation | None:
        assert topic == "orders"
        self.looks += 1
        return _given(self.held)

    def require(self) -> TopicIncarnation | None:
        return self.guard.require("orders")


def _given(what: TopicIncarnation | Exception | None) -> TopicIncarnation | None:
    if isinstance(what, Exception):
        raise what
    return what


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


def test_a_topic_in_use_is_compared_beside_the_calls_and_after_a_pause_before_the_next(guarded: Guarded) -> None:
    for _ in range(100):
        assert guarded.require() == ONE
    assert guarded.looks == 1
    guarded.held, guarded.now = TWO, FRESH_SECONDS
    assert guarded.require() == ONE  # it does not wait for the answer
    guarded.guard.close()
    with pytest.raises(OtherTopicError):
        guarded.require()
    paused = Guarded()
    paused.require()
    paused.held, paused.now = TWO, TRUSTED_SECONDS
    with pytest.raises(OtherTopicError):
        paused.require()


def test_doubt_compares_before_the_next_use(guarded: Guarded) -> None:
    guarded.require()
    guarded.held = TWO
    guarded.require()
    guarded.guard.doubt("orders")
    with pytest.raises(OtherTopicError):
        guarded.require()


def test_a_refused_topic_is_used_again_once_it_is_accepted_and_caches_forget_the_former(guarded: Guarded) -> None:
    guarded.require()
    guarded.held = TWO
    guarded.guard.doubt("orders")
    with pytest.raises(OtherTopicError):
        guarded.require()
    looks = guarded.looks
    with pytest.raises(OtherTopicError):
        guarded.require()
    assert (guarded.looks, guarded.changed) == (looks, [])
    guarded.recorded, guarded.now = replace(TWO, number=1), guarded.now + REFUSED_SECONDS
    assert guarded.require() == replace(TWO, number=1)
    assert guarded.changed == ["orders"]


def test_a_topic_that_the_store_does_not_know_may_be_another_one_and_caches_forget_it(guarded: Guarded) -> None:
    guarded.recorded = None
    guarded.require()
    guarded.held = TWO
    guarded.guard.doubt("orders")
    assert guarded.require() == TWO
    assert guarded.changed == ["orders"]


def test_what_does_not_answer_is_no_reason_to_refuse(guarded: Guarded) -> None:
    guarded.recorded = UnreachableError("The store is away.")
    assert guarded.require() == ONE
    guarded.held, guarded.now = UnreachableError("Kafka is away."), TRUSTED_SECONDS
    assert guarded.require() == ONE
    first = Guarded()
    first.held = UnreachableError("Kafka is away.")
    with pytest.raises(UnreachableError):
        first.require()


def test_a_user_who_may_not_read_the_table_is_warned_once(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    guarded.recorded = ConfigurationError("permission denied for table journal_topic")
    for _ in range(2):
        guarded.guard.doubt("orders")
        assert guarded.require() == ONE
    assert [each.message for each in caplog.records] == ["journal.topic_unguarded"]


def test_a_topic_that_does_not_exist_is_left_to_the_log(guarded: Guarded) -> None:
    guarded.held = None
    assert guarded.require() is None


HELD = {0: Extent(0, 10), 1: Extent(5, 20)}


def test_nothing_is_reset_where_everything_fits() -> None:
    assert plan_reset("orders", ONE, {0: 9, 1: 4}, "one", HELD, {}) is None
    assert plan_reset("orders", None, {}, "one", HELD, {}) is None


def test_another_topic_begins_before_its_first_records_and_retires_what_is_stored() -> None:
    plan = plan_reset("orders", replace(ONE, number=1), {0: 99, 7: 3}, "two", HELD, {})
    assert plan is not None
    assert (plan.after, plan.offsets, plan.retires_all) == (replace(TWO, number=2), {0: -1, 1: 4}, True)
    assert plan.as_dict()["offsets"] == {"1": 4}
    assert plan.gives_offsets_again


def test_fewer_partitions_without_an_id_are_another_topic() -> None:
    plan = plan_reset("orders", TopicIncarnation(None, 3), {0: 1}, None, HELD, {})
    assert plan is not None
    assert plan.retires_all


def test_a_truncated_partition_begins_anew_and_one_that_lost_records_continues() -> None:
    plan = plan_reset("orders", ONE, {0: 10, 1: 2}, "one", HELD, {})
    assert plan is not None
    assert (plan.offsets, plan.retired, plan.retires_all) == ({0: -1, 1: 4}, (0,), False)
    assert plan.after == replace(ONE, number=1)
    lost = plan_reset("orders", ONE, {1: 2}, "one", HELD, {})
    assert lost is not None
    assert (lost.offsets, lost.retired, lost.after, lost.gives_offsets_again) == ({1: 4}, (), ONE, False)


def test_added_partitions_are_accepted_when_the_former_ones_are_replicated() -> None:
    grown = {**HELD, 2: Extent(0, 3)}
    with pytest.raises(TransientError, match=r"4 offsets of orders\[1\] are not replicated"):
        plan_reset("orders", ONE, {0: 9, 1: 15}, "one", grown, {1: 4})
    plan = plan_reset("orders", ONE, {0: 9, 1: 19}, "one", grown, {})
    assert plan is not None
    assert (plan.after, plan.offsets, plan.retired) == (TopicIncarnation("one", 3), {}, ())
    assert plan.gives_offsets_again  # for journals that move


offsets = st.dictionaries(st.integers(0, 3), st.integers(0, 30))
extents = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(0, 10)), min_size=1).map(
    lambda found: {number: Extent(first, first + size) for number, (first, size) in enumerate(found.values())}
)


@given(recorded=st.none() | st.builds(TopicIncarnation, st.sampled_from(["one", "two"]), st.integers(1, 4)),
       applied=offsets, held=extents)  # fmt: skip
def test_after_a_reset_nothing_is_refused_and_every_record_is_due_or_was_applied(
    recorded: TopicIncarnation | None, applied: dict[int, int], held: dict[int, Extent]
) -> None:
    plan = plan_reset("orders", recorded, applied, "one", held, {})
    after = recorded or TopicIncarnation("one", len(held))
    left = dict(applied)
    if plan is not None:
        after = plan.after
        left = ({} if plan.retires_all else left) | dict(plan.offsets)
    assert find_difference("orders", after, TopicIncarnation("one", len(held))) is None
    left = {number: offset for number, offset in left.items() if offset >= 0}
    pointers = {
        number: Pointer(offset + 1, topic_id=after.id, partitions=after.partitions) for number, offset in left.items()
    }
    assert unreadable("orders", "one", pointers, held) == {}
    for number, offset in left.items():
        # Nothing that the topic holds is skipped, unless it was applied.
        was_applied = recorded is None or recorded.id == "one"
        assert offset + 1 <= held[number].first or (was_applied and offset == applied[number])
    assert plan_reset("orders", after, left, "one", held, {}) is None


def test_a_replicator_records_the_first_topic_and_reads_no_added_partition() -> None:
    worker = ReplicateWorker(MemoryReplica(), 10)
    first = worker.begin("orders", "one", {0: 0, 1: 3})
    assert unreadable("orders", "one", first, {0: Extent(0, 9), 1: Extent(3, 9)}) == {}
    again = worker.begin("orders", "two", {0: 0, 1: 3})
    refused = unreadable("orders", "two", again, {0: Extent(0, 9), 1: Extent(3, 9)})
    assert sorted(refused) == [0, 1]
    grown = worker.begin("orders", "one", {0: 0, 1: 3, 2: 0})
    found = unreadable("orders", "one", grown, {0: Extent(0, 9), 1: Extent(3, 9), 2: Extent(0, 1)})
    assert list(found) == [2]
    assert "`inorder journal reset orders`" in found[2].hint


def test_a_checkpoint_names_its_topic_and_is_refused_by_another_one() -> None:
    at = Checkpoint("orders", {0: 4}).of_topic(ONE)
    assert Checkpoint.from_json(at.to_json(), "orders") == at
    assert at.of_topic(ONE) == at
    for other in (TWO, replace(ONE, number=1)):
        with pytest.raises(OtherTopicError, match="checkpoint"):
            at.of_topic(other)


def test_events_of_former_topics_are_included_after_the_scan_that_showed_them() -> None:
    former = replace(record(1, 7), partition_offset=PartitionOffset(FORMER + 3, 700))
    at = Checkpoint("orders", scan=StoreScan({FORMER: MAX_OFFSET}))
    assert not at.includes(former)
    assert at.after_scan().includes(former)
    assert not at.after_scan().is_beginning
