"""Looking at a drain ends with the drain, with its failure, or with the time allowed."""

from __future__ import annotations

import pytest

from inorder.bench.figures import drain_of
from inorder.bench.watching import SeenRecord, counted_of, watch
from inorder.model.errors import PermanentError, TransientError


def nothing() -> None:
    """All is well."""


def test_every_look_is_kept_until_it_is_done() -> None:
    counts = iter([0, 5, 5, 9])
    looks = watch(lambda: next(counts), lambda seen: seen >= 9, nothing, cap=30)
    assert [look.count for look in looks] == [0, 5, 5, 9]
    assert sorted(looks, key=lambda look: look.at) == looks


def test_looks_can_be_rated() -> None:
    counts = iter([0, 5, 10])
    looks = watch(lambda: next(counts), lambda seen: seen >= 10, nothing, cap=30)
    drain = drain_of(looks, rows=10, started=looks[0].at)
    assert drain.records_per_second is not None
    assert drain.startup_seconds > 0


def test_a_drain_that_does_not_end_is_given_up_with_what_it_carried() -> None:
    with pytest.raises(TransientError, match="Only 7 records were carried within 0 s"):
        watch(lambda: 7, lambda _: False, nothing, cap=0)


def test_a_service_that_died_is_noticed_before_the_time_is_over() -> None:
    def died() -> None:
        raise PermanentError("The relay ended by itself.")

    with pytest.raises(PermanentError, match="ended by itself"):
        watch(lambda: 0, lambda _: False, died, cap=3_600)


def test_latency_counts_from_the_moment_a_record_was_due() -> None:
    assert SeenRecord(number=1, due_ns=1_000_000, seen_ns=3_500_000).milliseconds == 2.5


def test_the_warm_up_is_left_out() -> None:
    seen = [SeenRecord(number, 0, 1) for number in (4, 0, 2, 3)]
    assert [one.number for one in counted_of(seen, warm=3)] == [4, 3]
