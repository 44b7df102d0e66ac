"""What replicators announce is understood, and whatever else lies on the topic is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.stores.kafka_notices import OffsetNotice, parse_notice

names = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(names, names, st.integers(0, 10_000), st.integers(0, 2**63 - 1))
def test_a_notice_is_read_as_it_was_written(store: str, topic: str, partition: int, offset: int) -> None:
    notice = OffsetNotice(store, (topic, partition), offset)
    assert parse_notice(notice.key(), notice.value()) == notice


def test_newer_notices_of_a_partition_have_the_same_key_and_others_have_not() -> None:
    notice = OffsetNotice("9f", ("journal", 3), 41)
    assert (notice.key(), notice.value()) == (b"9f/journal/3", b'{"offset": 41}')
    assert OffsetNotice("9f", ("journal", 3), 42).key() == notice.key()
    assert notice.key() not in {
        OffsetNotice("a0", ("journal", 3), 41).key(),
        OffsetNotice("9f", ("journal", 4), 41).key(),
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"9f/journal/3", None),
        (None, b'{"offset": 41}'),
        (b"9f/journal", b'{"offset": 41}'),
        (b"9f/journal/3/4", b'{"offset": 41}'),
        (b"9f/journal/three", b'{"offset": 41}'),
        (b"\xff/journal/3", b'{"offset": 41}'),
        (b"9f/journal/3", b"41"),
        (b"9f/journal/3", b"[41]"),
        (b"9f/journal/3", b"{}"),
        (b"9f/journal/3", b'{"offset": "41"}'),
        (b"9f/journal/3", b'{"offset": true}'),
        (b"9f/journal/3", b'{"offset": 41'),
        (b"9f/journal/3", b"\xff"),
        (b"9f/journal/3", b"[" * 100_000),
    ],
)
def test_what_is_no_notice_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert parse_notice(key, value) is None


def test_members_of_later_versions_do_no_harm() -> None:
    assert parse_notice(b"9f/journal/3", b'{"offset": 41, "at": "noon"}') == OffsetNotice("9f", ("journal", 3), 41)


@given(st.binary(), st.binary())
def test_no_bytes_raise(key: bytes, value: bytes) -> None:
    parse_notice(key, value)
