"""Two events with one number, or a falling number: distinguished and reported, never merged."""

from __future__ import annotations

import pytest

from inorder.journal.life import separate_forks
from tests.unit.journal.acting import record


@pytest.mark.parametrize(
    ("end", "seq_nrs", "kept", "forks"),
    [
        (0, [1, 2, 3], [1, 2, 3], []),
        (0, [1, 5, 9], [1, 5, 9], []),
        (3, [4], [4], []),
        (3, [3], [], [(3, "proven")]),
        (3, [2], [], [(2, "suspected")]),
        (0, [1, 2, 2, 3], [1, 2, 3], [(2, "proven")]),
        (0, [5, 3, 6], [5, 6], [(3, "suspected")]),
        (3, [1, 2, 4], [4], [(1, "suspected"), (2, "suspected")]),
        # A fork does not raise what the next one is compared with.
        (9, [5, 6, 10], [10], [(5, "suspected"), (6, "suspected")]),
    ],
)
def test_an_event_counts_if_its_number_is_above_all_before_it(
    end: int, seq_nrs: list[int], kept: list[int], forks: list[tuple[int, str]]
) -> None:
    counted = separate_forks(end, [record(seq_nr, offset) for offset, seq_nr in enumerate(seq_nrs, 10)])
    assert [event.seq_nr for event in counted.kept] == kept
    assert [(fork.record.seq_nr, "proven" if fork.is_proven else "suspected") for fork in counted.forks] == forks


def test_a_fork_says_where_it_is() -> None:
    [fork] = separate_forks(3, [record(2, 7)]).forks
    assert str(fork) == "suspected fork: seq_nr 2 at 0:7 after 3"
