"""One key, one partition, the same one that Java clients choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.partitioning import Partitioner, murmur2, partition_of

_partitions = st.integers(1, 1000)


# The vectors of Kafka's own UtilsTest, as Java's signed ints.
@pytest.mark.parametrize(
    ("data", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_the_hash_of_the_java_client(data: bytes, java: int) -> None:
    assert murmur2(data) == java % 2**32


@given(st.binary(max_size=64))
def test_murmur2_is_32_bits_wide(data: bytes) -> None:
    assert 0 <= murmur2(data) < 2**32


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_no_key_leaves_the_choice_to_the_client(partitioner: Partitioner) -> None:
    assert partition_of(None, 3, partitioner) is None


@given(st.binary(max_size=64), _partitions, st.sampled_from(Partitioner))
def test_a_key_has_one_partition_and_it_exists(key: bytes, partitions: int, partitioner: Partitioner) -> None:
    partition = partition_of(key, partitions, partitioner)
    assert partition is not None
    assert 0 <= partition < partitions
    assert partition == partition_of(bytes(key), partitions, partitioner)


@given(st.integers(), _partitions)
def test_integer_ids_go_to_id_modulo_partitions(number: int, partitions: int) -> None:
    assert partition_of(b"%d" % number, partitions, Partitioner.ID_MODULO) == number % partitions


def test_the_example_of_the_source_document() -> None:
    assert partition_of(b"30", 3, Partitioner.ID_MODULO) == 0


@pytest.mark.parametrize(
    "key",
    [b"", b"007", b"+1", b"-0", b"-", b"1 ", b" 1", b"1\n", b"1_000", b"1.0", b"x", "٣".encode(), b"9" * 641],
)
def test_only_the_canonical_spelling_is_an_id(key: bytes) -> None:
    for partitions in (7, 12, 1000):
        by_hash = partition_of(key, partitions, Partitioner.MURMUR2)
        assert partition_of(key, partitions, Partitioner.ID_MODULO) == by_hash


def test_a_very_long_id_is_still_an_id() -> None:
    assert partition_of(b"9" * 640, 10, Partitioner.ID_MODULO) == 9


def test_murmur2_ignores_that_a_key_is_a_number() -> None:
    assert partition_of(b"21", 10, Partitioner.MURMUR2) == (-973932308 & 0x7FFFFFFF) % 10
