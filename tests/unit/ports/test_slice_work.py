"""A slice is cut into portions that a transaction can take, and nothing of it is lost or moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import PORTION_BYTES, Slice, portions

LENGTHS = st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=12)


def slice_of(lengths: list[int | None], *, headers: bool = True) -> Slice:
    values = [None if length is None else b"x" * length for length in lengths]
    count = range(len(values))
    return Slice(
        "topic",
        3,
        [10 + 2 * number for number in count],
        [b"key %d" % number for number in count],
        values,
        list(count),
        [(("h", b"%d" % number),) for number in count] if headers else (),
    )


def columns(batch: Slice) -> list[tuple[object, ...]]:
    return list(zip(batch.offsets, batch.keys, batch.values, batch.timestamps, batch.headers, strict=True))


@given(LENGTHS, st.integers(1, 20))
def test_portions_make_the_whole_again_and_none_is_larger_than_allowed(lengths: list[int | None], most: int) -> None:
    batch = slice_of(lengths)
    found = list(portions(batch, most))
    assert [row for each in found for row in columns(each)] == columns(batch)
    assert {(each.topic, each.partition) for each in found} == {("topic", 3)}
    sizes = [[len(value or b"") for value in each.values] for each in found]
    assert all(sum(some) <= most or sum(map(bool, some)) == 1 for some in sizes)


def test_a_small_slice_is_one_portion_and_the_very_same() -> None:
    for batch in (slice_of([1, None, 5]), slice_of([])):
        assert list(portions(batch)) == [batch]
        assert next(portions(batch)) is batch


def test_a_slice_without_headers_is_cut_too() -> None:
    batch = slice_of([PORTION_BYTES, 1, PORTION_BYTES], headers=False)
    assert [(list(each.offsets), each.headers) for each in portions(batch)] == [([10], ()), ([12], ()), ([14], ())]
