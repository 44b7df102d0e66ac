"""The demo gives up a path without progress, but not one whose Spark is still starting."""

from __future__ import annotations

import pytest

from inorder.demo.path import Position
from inorder.demo.run import FIRST_PATIENCE_SECONDS, PATIENCE_SECONDS, patience


@pytest.mark.parametrize(
    ("position", "seconds"),
    [
        (Position(waiting=0, applied=0, rejected=0), FIRST_PATIENCE_SECONDS),
        (Position(waiting=9, applied=0, rejected=0), FIRST_PATIENCE_SECONDS),
        (Position(waiting=0, applied=1, rejected=0), PATIENCE_SECONDS),
        (Position(waiting=0, applied=0, rejected=1), PATIENCE_SECONDS),
    ],
)
def test_a_path_that_has_carried_nothing_yet_has_longer_to_begin(position: Position, seconds: float) -> None:
    assert patience(position) == seconds
    assert FIRST_PATIENCE_SECONDS > PATIENCE_SECONDS
