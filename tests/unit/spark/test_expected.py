"""The pointers that the driver saw committed reach the tasks of a batch, and a task without them applies nothing."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import TaskContext

from inorder.engines.micro_batch import PROPERTY, read_expected, set_expected
from inorder.model.errors import GuaranteeError


class Driver:
    """Keeps the local properties of this thread, as Spark's context does."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value

    @property
    def batch(self) -> Any:
        return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=self))


@pytest.fixture
def task() -> Iterator[dict[str, str]]:
    """The properties of the task that we pretend to be in."""
    properties: dict[str, str] = {}
    context = cast("Any", TaskContext)._getOrCreate()
    context._localProperties = properties
    yield properties
    cast("Any", TaskContext)._setTaskContext(None)


@pytest.mark.parametrize(
    "pointers",
    [{}, {("orders", 0): 0}, {("orders", 0): 7, ("orders", 11): 1 << 60, ("a.b_c-d", 2): 3}],
)
def test_a_task_hears_what_the_driver_told(task: dict[str, str], pointers: dict[tuple[str, int], int]) -> None:
    driver = Driver()
    set_expected(driver.batch, pointers)
    task.update(driver.properties)
    assert read_expected() == pointers


def test_a_later_batch_hears_later_pointers() -> None:
    driver = Driver()
    set_expected(driver.batch, {("orders", 0): 7})
    set_expected(driver.batch, {("orders", 0): 9})
    assert driver.properties == {PROPERTY: '[["orders",0,9]]'}


def test_a_task_that_was_told_nothing_refuses_to_work(task: dict[str, str]) -> None:
    assert task == {}
    with pytest.raises(GuaranteeError, match="no expected pointers"):
        read_expected()


def test_outside_a_task_nothing_is_known() -> None:
    with pytest.raises(GuaranteeError):
        read_expected()
