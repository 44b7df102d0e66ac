"""Python's search for cycles is made rarer in a worker, and one that somebody has switched off stays off."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from inorder.spark.garbage import OBJECTS, look_for_cycles_less_often


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_looks_less_often() -> None:
    gc.set_threshold(700, 10, 10)
    look_for_cycles_less_often()
    look_for_cycles_less_often()
    assert gc.get_threshold() == (OBJECTS, 10, 10)


def test_what_is_switched_off_stays_off() -> None:
    gc.set_threshold(0)
    look_for_cycles_less_often()
    assert gc.get_threshold()[0] == 0
