"""The head cache of a partition: who is answered when, and that what is dropped is not taken for nothing."""

from __future__ import annotations

import pytest

from inorder.journal.action import Action, Delete, Mark, Purge
from inorder.journal.reading.head import EMPTY, HeadInfo, LogAction
from inorder.journal.reading.head_cache import Ahead, Answer, Behind, InspectedRecord, Known, Limited, PartitionCache
from tests.unit.journal.acting import appended


def seen(offset: int, id: str = "id0", action: Action | None = None) -> InspectedRecord:
    return InspectedRecord(offset, id.encode(), action or Mark("x"))


def append(offset: int, seq_nr: int, id: str = "id0") -> InspectedRecord:
    return seen(offset, id, appended(seq_nr))


def found(cache: PartitionCache, offset: int, id: str = "id0") -> HeadInfo | type[object]:
    """The actions that are known, or the kind of the answer."""
    answer = cache.find(id.encode(), offset)
    return answer.info if isinstance(answer, Known) else type(answer)


def info(*appends: tuple[int, int], first: int | None = None) -> HeadInfo:
    """What is kept of appends, given by offset and number."""
    actions = tuple(LogAction(offset, appended(number)) for offset, number in appends)
    return HeadInfo(actions, appends[0][0] if first is None else first)


def test_an_empty_cache_is_behind() -> None:
    assert found(PartitionCache(), 0) is Behind


def test_what_the_store_has_is_ahead() -> None:
    cache = PartitionCache()
    cache.remove(0)
    assert [found(cache, 0), found(cache, 1)] == [Ahead, Behind]
    cache.remove(1)
    assert found(cache, 0) is Ahead


@pytest.mark.parametrize(
    ("record", "known"),
    [
        (seen(1), EMPTY),
        (InspectedRecord(1), EMPTY),
        (InspectedRecord(1, b"id0"), EMPTY),
        (append(1, 1), info((1, 1))),
        (seen(1, action=Delete(3)), HeadInfo((LogAction(1, Delete(3)),), 1)),
        (seen(1, action=Purge()), HeadInfo((LogAction(1, Purge()),), 1)),
        (append(1, 1, "id1"), EMPTY),
        (InspectedRecord(1, b"id0", is_damaged=True), HeadInfo((), 1, lacks=1)),
    ],
)
def test_a_record_is_known_once_it_was_seen(record: InspectedRecord, known: HeadInfo) -> None:
    cache = PartitionCache()
    cache.remove(0)
    cache.add([record])
    assert found(cache, 1) == known
    assert found(cache, 2) is Behind


def test_a_record_that_is_seen_again_counts_once() -> None:
    cache = PartitionCache()
    cache.add([append(0, 1), append(0, 1), append(1, 2)])
    cache.add([append(0, 1), append(1, 2)])
    assert found(cache, 1) == info((0, 1), (1, 2))


def test_the_answer_says_up_to_where_it_goes() -> None:
    cache = PartitionCache()
    cache.add([append(0, 1), append(1, 2), seen(2)])
    assert cache.find(b"id0", 0) == Known(info((0, 1), (1, 2)), 1, None)


class TestListening:
    """A look-up before its record is read waits."""

    def listening(self, cache: PartitionCache, offset: int, id: str = "id0") -> list[Answer]:
        answers: list[Answer] = []
        cache.listen(id.encode(), offset, answers.append)
        return answers

    @pytest.mark.parametrize("offset", [1, 2])
    @pytest.mark.parametrize("id", ["id0", "id1"])
    def test_any_later_record_answers(self, offset: int, id: str) -> None:
        cache = PartitionCache()
        cache.add([seen(0)])
        answers = self.listening(cache, 1)
        cache.add([seen(0, id)])
        assert answers == []
        cache.add([seen(offset, id)])
        assert answers == [Known(EMPTY, 1, None)]
        assert cache.listeners == 0

    @pytest.mark.parametrize("offset", [1, 2])
    def test_the_store_answers_too(self, offset: int) -> None:
        cache = PartitionCache()
        cache.add([seen(0)])
        answers = self.listening(cache, 1)
        cache.remove(0)
        assert answers == []
        cache.remove(offset)
        assert answers == [Ahead()]

    @pytest.mark.parametrize(("offset", "answer"), [(0, Known(EMPTY, 0, None)), (1, Limited())])
    def test_a_cache_that_begins_later_cannot_tell(self, offset: int, answer: Answer) -> None:
        cache = PartitionCache()
        answers = self.listening(cache, 0)
        cache.add([seen(offset)])
        assert answers == [answer]

    def test_an_answer_that_is_there_is_given_at_once(self) -> None:
        cache = PartitionCache()
        cache.remove(3)
        assert self.listening(cache, 3) == [Ahead()]

    def test_whoever_stops_listening_hears_nothing(self) -> None:
        cache = PartitionCache()
        answers: list[Answer] = []
        stop = cache.listen(b"id0", 1, answers.append)
        stop()
        stop()
        cache.add([seen(2)])
        assert (answers, cache.listeners, cache.is_idle) == ([], 0, True)


class TestLimits:
    """With too many journals the longest untouched are dropped."""

    def test_the_oldest_go(self) -> None:
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.5)
        cache.add([append(0, 1), append(1, 2)])
        assert found(cache, 1) == info((0, 1), (1, 2))
        cache.add([append(2, 1, "id1"), append(3, 1, "id2")])
        assert found(cache, 3, "id2") == info((3, 1))
        assert found(cache, 2) is Limited
        assert cache.size == 1

    def test_all_but_the_newest_may_go(self) -> None:
        cache = PartitionCache(max_journals=2, drop_upon_limit=1.0)
        cache.add([append(0, 1), append(1, 1, "id1"), append(2, 1, "id2")])
        assert [found(cache, 2, id) for id in ("id0", "id1", "id2")] == [Limited, Limited, info((2, 1))]

    def test_listeners_are_answered_before_anything_is_dropped(self) -> None:
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.5)
        answers: list[Answer] = []
        cache.listen(b"id0", 2, answers.append)
        cache.add([append(0, 1), append(1, 1, "id1"), append(2, 1, "id2")])
        assert answers == [Known(info((0, 1)), 0, None)]
        assert found(cache, 2) is Limited

    def test_a_journal_that_is_touched_stays(self) -> None:
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.4)
        cache.add([append(0, 1), append(1, 1, "id1"), append(2, 2), append(3, 1, "id2")])
        assert found(cache, 0) == info((0, 1), (2, 2))
        assert found(cache, 1, "id1") is Limited

    def test_many_actions_of_few_journals_are_too_many_as_well(self) -> None:
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.5)
        cache.add([append(0, 1), *(append(offset, offset, "id1") for offset in range(1, 8))])
        assert cache.size == 2
        cache.add([append(8, 8, "id1")])
        assert [found(cache, 8), cache.size] == [Limited, 1]
        cache.remove(7)
        assert found(cache, 8) == EMPTY

    def test_marks_do_not_count(self) -> None:
        cache = PartitionCache(max_journals=2)
        cache.add([seen(0, "a"), seen(1, "b"), seen(2, "c")])
        assert (cache.size, found(cache, 0, "a")) == (0, EMPTY)

    def test_a_dropped_journal_is_not_taken_for_one_without_actions(self) -> None:
        # The original answers "nothing to see" here, and the append at 0 is not read until it is replicated.
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.5)
        cache.add([append(0, 1), append(1, 1, "id1"), append(2, 1, "id2"), seen(3)])
        assert found(cache, 3) is Limited
        cache.remove(1)
        assert found(cache, 3) == EMPTY

    def test_a_journal_that_comes_back_after_it_was_dropped_is_not_taken_for_whole(self) -> None:
        # The original answers with the append at 3 alone.
        cache = PartitionCache(max_journals=2, drop_upon_limit=0.5)
        cache.add([append(0, 1), append(1, 1, "id1"), append(2, 1, "id2")])
        cache.add([append(3, 2)])
        assert found(cache, 3) is Limited
        cache.remove(1)
        assert found(cache, 3) == info((3, 2))


def test_a_cache_that_starts_behind_a_hole_in_the_offsets_knows_it_has_all() -> None:
    cache = PartitionCache(start=10)
    cache.remove(9)
    cache.add([append(12, 1)])
    assert [found(cache, 12), found(cache, 12, "id1")] == [info((12, 1)), EMPTY]


def test_the_store_takes_over_what_it_has_and_only_that() -> None:
    cache = PartitionCache()
    cache.add([append(0, 1), append(1, 1, "id1"), append(2, 2)])
    cache.remove(1)
    assert (cache.size, found(cache, 2), found(cache, 2, "id1")) == (1, info((0, 1), (2, 2)), EMPTY)
    cache.remove(2)
    assert (cache.size, cache.is_idle) == (0, True)


def test_offsets_and_differences() -> None:
    cache = PartitionCache()
    offsets = [cache.offset]
    differences = []
    for step in (cache.remove(1), cache.remove(0)):
        differences.append(step)
        offsets.append(cache.offset)
    differences.append(cache.add([seen(2)]))
    offsets.append(cache.offset)
    differences.append(cache.remove(3))
    offsets.append(cache.offset)
    assert offsets == [None, 1, 1, 2, 3]
    assert differences == [None, None, None, 2]
    assert [cache.add([seen(offset)]) for offset in (3, 4, 6)] == [1, 1, 2]


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_batches_do_not_matter(batches: int) -> None:
    """The original merges batches by a second set of rules, which loses a purge that is followed by an append."""
    records = [append(0, 7), seen(1, action=Delete(7)), seen(2, action=Purge()), append(3, 1)]
    cache = PartitionCache()
    for start in range(0, len(records), batches):
        cache.add(records[start : start + batches])
    assert found(cache, 3) == HeadInfo((LogAction(2, Purge()), LogAction(3, appended(1))), 2)
