"""What the number that a lane has committed means for the batch that comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import GuaranteeError
from inorder.model.message import OutboxRow
from inorder.pipeline.stores.batch_log import BatchId, BatchProgress, Digest, is_done, progress_of, require_same

LANE = "inorder.spark.orders.0"


def progress(number: int, query: str = "q", *keys: bytes | None) -> BatchProgress:
    return BatchProgress(BatchId(query, number), digest(*keys))


def digest(*keys: bytes | None) -> Digest:
    found = Digest()
    found.add([OutboxRow(id, "t", key, None, (), None, None) for id, key in enumerate(keys)])
    return found


@given(st.integers(0, 2**40), st.text(), st.lists(st.none() | st.binary()))
def test_what_is_committed_is_what_is_read_back(number: int, query: str, keys: list[bytes | None]) -> None:
    kept = progress(number, query, *keys)
    assert progress_of(number + 1, kept.to_text()) == kept


@pytest.mark.parametrize(("offset", "text"), [(-1001, ""), (-1001, None), (0, ""), (3, ""), (3, None)])
def test_nothing_committed_is_no_progress(offset: int, text: str | None) -> None:
    assert progress_of(offset, text) is None


@pytest.mark.parametrize(("committed", "done"), [(None, False), (2, False), (6, False), (7, True)])
def test_a_batch_is_done_when_its_number_is_committed(committed: int | None, done: bool) -> None:
    last = None if committed is None else progress(committed)
    assert is_done(LANE, last, BatchId("q", 7)) is done


def test_a_checkpoint_that_went_back_is_refused_rather_than_skipped() -> None:
    with pytest.raises(GuaranteeError, match="has committed batch 9, and now comes batch 7 again"):
        is_done(LANE, progress(9), BatchId("q", 7))


@pytest.mark.parametrize("number", [0, 7, 12])
def test_a_name_belongs_to_one_query(number: int) -> None:
    with pytest.raises(
        GuaranteeError, match=f"belongs to query old, .* this is batch {number} of query new"
    ) as refused:
        is_done(LANE, progress(7, "old"), BatchId("new", number))
    assert "give it another" in refused.value.hint


@given(st.lists(st.none() | st.binary()).flatmap(lambda keys: st.tuples(st.just(keys), st.permutations(keys))))
def test_rows_may_come_in_any_order_when_they_come_again(both: tuple[list[bytes | None], list[bytes | None]]) -> None:
    before, after = both
    require_same(LANE, progress(7, "q", *before), digest(*after))


def test_another_number_of_rows_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="Batch 7 had 2 records, and now 3 in"):
        require_same(LANE, progress(7, "q", b"a", b"b"), digest(b"a", b"b", b"c"))


def test_rows_without_keys_are_known_by_their_values() -> None:
    one, other = (OutboxRow(0, "t", None, value, (), None, None) for value in (b"a", b"b"))
    before, after = Digest(), Digest()
    before.add([one])
    after.add([other])
    with pytest.raises(GuaranteeError, match="other keys"):
        require_same(LANE, BatchProgress(BatchId("q", 7), before), after)


def test_other_rows_are_refused() -> None:
    with pytest.raises(GuaranteeError, match="Batch 7 had other keys in"):
        require_same(LANE, progress(7, "q", b"a", b"b"), digest(b"a", b"c"))
