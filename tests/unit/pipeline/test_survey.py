"""Where a start begins, and how partitions are shared out: without servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Pointer, Slice, SliceOutcome, SliceWorker
from inorder.engines.survey import Survey, survey, unreadable
from inorder.model.errors import GuaranteeError, OtherTopicError, TransientError
from inorder.model.partitioning import Extent, Place


@dataclass
class FakeSource:
    """A cluster with these topics."""

    topics: dict[str, dict[int, Extent]]
    ids: dict[str, str] = field(default_factory=dict)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return self.topics.get(topic)

    def partitions(self, topic: str) -> int | None:
        return len(self.topics[topic]) if topic in self.topics else None

    def topic_id(self, topic: str) -> str | None:
        return self.ids.get(topic)

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        raise AssertionError(f"a survey reads no records: {starts} {headers} {reports_ends} {epochs}")


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

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        self.found[topic] = {number: Pointer(first, 0, topic_id) for number, first in firsts.items()} | self.found[
            topic
        ]
        return self.found[topic]

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        raise AssertionError(f"a survey applies nothing: {batch} {expected}")

    def close(self) -> None:
        self.closed.append(True)


def test_a_survey_finds_pointers_and_partitions_of_all_topics() -> None:
    work = FakeWork({"a": {0: Pointer(4)}, "b": {}})
    found = survey(work, FakeSource({"a": {0: Extent(0, 9), 1: Extent(0, 0)}, "b": {0: Extent(3, 3)}}))
    pointers = {("a", 0): 4, ("a", 1): 0, ("b", 0): 3}
    assert found == Survey({"a": 2, "b": 1}, pointers, ids={"a": None, "b": None})
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
    source = BusySource({"a": {0: Extent(5, 9)}}, before={0: Extent(0, 4)})
    assert survey(FakeWork({"a": {0: Pointer(6)}}), source).pointers == {("a", 0): 6}


def test_a_pointer_past_the_end_that_is_asked_after_it_is_one() -> None:
    source = BusySource({"a": {0: Extent(0, 5)}}, before={0: Extent(0, 4)})
    with pytest.raises(GuaranteeError, match="is at 6, but the partition ends at 5"):
        survey(FakeWork({"a": {0: Pointer(6)}}), source)


def test_topics_that_do_not_exist_yet_are_left_out_while_others_do() -> None:
    source = FakeSource({"a": {0: Extent(0, 9)}})
    found = survey(FakeWork({"a": {}, "b": {0: Pointer(7)}}), source)
    assert (found.partitions, found.missing) == ({"a": 1}, ("b",))
    assert not found.has_changed(source)
    assert found.has_changed(FakeSource({"a": {0: Extent(0, 9)}, "b": {0: Extent(0, 9)}}))


def test_nothing_to_read_is_waited_for() -> None:
    with pytest.raises(TransientError, match="Topic 'a' does not exist yet"):
        survey(FakeWork({"a": {}}), FakeSource({}))
    with pytest.raises(TransientError, match="Topics 'a', 'b' do not exist yet"):
        survey(FakeWork({"a": {}, "b": {}}), FakeSource({}))


def test_more_partitions_are_noticed_and_a_topic_that_went_is_not_growth() -> None:
    found = Survey({"a": 2}, {})
    assert found.has_changed(FakeSource({"a": {0: Extent(0, 0), 1: Extent(0, 0), 2: Extent(0, 0)}}))
    assert not found.has_changed(FakeSource({"a": {0: Extent(0, 0)}}))
    assert not found.has_changed(FakeSource({}))


@pytest.mark.parametrize(
    ("pointer", "extent", "message"),
    [
        (Pointer(4), Extent(5, 9), "begins at 5: records were deleted"),
        (Pointer(10), Extent(0, 9), "ends at 9: it was truncated, or deleted and re-created"),
        (Pointer(10), None, "does not exist"),
        (Pointer(7, topic_id="one"), Extent(0, 9), "re-created: records of the topic with id one were applied"),
    ],
)
def test_a_pointer_that_the_topic_cannot_serve_is_loud(pointer: Pointer, extent: Extent | None, message: str) -> None:
    extents = {} if extent is None else {3: extent}
    found = unreadable("upsert", "two", {3: pointer}, extents)
    assert message in found[3].message
    assert found[3].place == ("upsert", 3)
    assert "`inorder pipeline reset upsert`" in found[3].hint


@pytest.mark.parametrize("at", [5, 7, 9])
def test_a_pointer_within_the_topic_is_fine(at: int) -> None:
    pointers = {3: Pointer(at), 4: Pointer(1, topic_id="one")}
    for id in ("one", None):
        assert unreadable("upsert", id, pointers, {3: Extent(5, 9), 4: Extent(0, 1)}) == {}


def test_one_partition_that_cannot_be_read_does_not_stop_the_others() -> None:
    work = FakeWork({"a": {0: Pointer(4), 1: Pointer(0)}, "b": {0: Pointer(0, 0, "old")}})
    extents = {"a": {0: Extent(0, 9), 1: Extent(3, 9)}, "b": {0: Extent(0, 9)}}
    found = survey(work, FakeSource(extents, {"a": "same", "b": "new"}))
    assert found.places == [("a", 0)]
    assert [type(found.stopped[place]) for place in (("a", 1), ("b", 0))] == [GuaranteeError, OtherTopicError]
    with pytest.raises(OtherTopicError):
        survey(FakeWork({"b": {0: Pointer(0, 0, "old")}}), FakeSource(extents, {"b": "new"}))


def test_a_topic_that_lost_partitions_is_read_in_none() -> None:
    work = FakeWork({"a": {0: Pointer(4), 1: Pointer(0)}})
    with pytest.raises(GuaranteeError, match=r"a\[1\] is at 0, but the partition does not exist"):
        survey(work, FakeSource({"a": {0: Extent(0, 9)}}))


def test_another_topic_of_the_same_name_is_a_change() -> None:
    extents = {"a": {0: Extent(0, 9)}}
    found = survey(FakeWork({"a": {}}), FakeSource(extents, {"a": "one"}))
    assert not found.has_changed(FakeSource(extents, {"a": "one"}))
    assert not found.has_changed(FakeSource(extents))
    assert found.has_changed(FakeSource(extents, {"a": "two"}))
