"""A worker collects garbage less often and traverses less; a collector that is switched off stays off."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from inorder.gc_tuning import OBJECTS, relax

TASKS = """
import gc
from inorder.gc_tuning import freeze_once
class Circle:
    def __init__(self): self.me = self
    def __del__(self): print("found", flush=True)
for number in range(4):
    freeze_once()
    print(gc.get_freeze_count(), flush=True)
    Circle()
    gc.collect()
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_looks_less_often() -> None:
    gc.set_threshold(700, 10, 10)
    relax()
    relax()
    assert gc.get_threshold() == (OBJECTS, 10, 10)


def test_what_is_switched_off_stays_off() -> None:
    gc.set_threshold(0)
    relax()
    assert gc.get_threshold()[0] == 0


def test_what_the_first_task_loaded_is_set_aside_once_and_the_cycles_of_later_tasks_are_still_found() -> None:
    # In a process of its own: what is set aside stays so until its process ends.
    run = subprocess.run([sys.executable, "-c", TASKS], capture_output=True, text=True, check=True, timeout=60)
    first, _, second, _, *later = run.stdout.split()
    assert int(first) == 0
    assert int(second) > 1_000
    assert set(later) == {second, "found"}
    assert run.stdout.count("found") == 4
