"""Where a start begins, and how partitions are shared out: without servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import PartitionReader, Pointer, Slice, SliceOutcome, SliceWorker
from inorder.engines.survey import Survey, check_reachable, share_out, survey
from inorder.model.errors import GuaranteeError, TransientError
from inorder.model.partitioning import Extent, Place


@dataclass
class FakeSource:
    """A cluster with these topics."""

    topics: dict[str, dict[int, Extent]]

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return self.topics.get(topic)

    def partitions(self, topic: str) -> int | None:
        return len(self.topics[topic]) if topic in self.topics else None

    def open(
        self, starts: Mapping[Place, int | None], *, headers: bool = False, reports_ends: bool = False
    ) -> PartitionReader:
        raise AssertionError(f"a survey reads no records: {starts} {headers} {reports_ends}")


@dataclass(eq=False)
class FakeWork:
    """A pipeline with these pointers."""

    found: dict[str, dict[int, Pointer]]
    name: str = "demo"
    needs_headers: bool = False
    closed: list[bool] = field(default_factory=list)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.found)

    def open(self) -> SliceWorker:
        return self

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self.found[topic]

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        raise AssertionError(f"a survey applies nothing: {batch} {expected}")

    def close(self) -> None:
        self.closed.append(True)


def test_a_survey_finds_pointers_and_partitions_of_all_topics() -> None:
    work = FakeWork({"a": {0: Pointer(4)}, "b": {}})
    found = survey(work, FakeSource({"a": {0: Extent(0, 9), 1: Extent(0, 0)}, "b": {0: Extent(3, 3)}}))
    assert found == Survey({"a": 2, "b": 1}, {("a", 0): 4})
    assert found.places == [("a", 0), ("a", 1), ("b", 0)]
    assert work.closed == [True]


@dataclass
class BusySource(FakeSource):
    """A cluster on which others write, apply and delete: what it says the first time is soon old."""

    before: dict[int, Extent] = field(default_factory=dict)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        extents, self.before = self.before, {}
        return extents or super().extents(topic)


def test_a_pointer_that_another_driver_moves_past_an_end_that_is_old_is_no_loss() -> None:
    source = BusySource({"a": {0: Extent(5, 9)}}, {0: Extent(0, 4)})
    assert survey(FakeWork({"a": {0: Pointer(6)}}), source).pointers == {("a", 0): 6}


def test_a_pointer_past_the_end_that_is_asked_after_it_is_one() -> None:
    source = BusySource({"a": {0: Extent(0, 5)}}, {0: Extent(0, 4)})
    with pytest.raises(GuaranteeError, match="is at 6, but the partition ends at 5"):
        survey(FakeWork({"a": {0: Pointer(6)}}), source)


def test_topics_that_do_not_exist_yet_are_left_out_while_others_do() -> None:
    source = FakeSource({"a": {0: Extent(0, 9)}})
    found = survey(FakeWork({"a": {}, "b": {0: Pointer(7)}}), source)
    assert (found.partitions, found.missing) == ({"a": 1}, ("b",))
    assert not found.has_grown(source)
    assert found.has_grown(FakeSource({"a": {0: Extent(0, 9)}, "b": {0: Extent(0, 9)}}))


def test_nothing_to_read_is_waited_for() -> None:
    with pytest.raises(TransientError, match="Topic 'a' does not exist yet"):
        survey(FakeWork({"a": {}}), FakeSource({}))
    with pytest.raises(TransientError, match="Topics 'a', 'b' do not exist yet"):
        survey(FakeWork({"a": {}, "b": {}}), FakeSource({}))


def test_more_partitions_are_noticed_and_a_topic_that_went_is_not_growth() -> None:
    found = Survey({"a": 2}, {})
    assert found.has_grown(FakeSource({"a": {0: Extent(0, 0), 1: Extent(0, 0), 2: Extent(0, 0)}}))
    assert not found.has_grown(FakeSource({"a": {0: Extent(0, 0)}}))
    assert not found.has_grown(FakeSource({}))


@pytest.mark.parametrize(
    ("pointer", "extent", "message"),
    [
        (Pointer(4), Extent(5, 9), "begins at 5: records were deleted"),
        (Pointer(10), Extent(0, 9), "ends at 9: it was deleted and re-created"),
        (Pointer(10), None, "does not exist"),
    ],
)
def test_a_pointer_that_the_topic_cannot_serve_is_loud(pointer: Pointer, extent: Extent | None, message: str) -> None:
    extents = {} if extent is None else {3: extent}
    with pytest.raises(GuaranteeError, match=message) as caught:
        check_reachable("upsert", {3: pointer}, extents)
    assert f"upsert[3] is at {pointer.next_offset}" in caught.value.message
    assert "delete its inorder_pointer rows" in caught.value.hint


@pytest.mark.parametrize("at", [5, 7, 9])
def test_a_pointer_within_the_topic_is_fine(at: int) -> None:
    check_reachable("upsert", {3: Pointer(at)}, {3: Extent(5, 9), 4: Extent(0, 1)})


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 20)), st.integers(1, 12))
def test_every_partition_has_one_task_no_task_is_idle_and_shares_are_even(topics: dict[str, int], tasks: int) -> None:
    places = [(topic, number) for topic, count in topics.items() for number in range(count)]
    shares = share_out(places, tasks)
    assert sorted(place for share in shares for place in share) == sorted(places)
    assert len(shares) == min(tasks, len(places))
    sizes = [len(share) for share in shares]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(sizes)
