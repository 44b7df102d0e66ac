"""The examples in docstrings of engines and the pipeline hold."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import inorder.engines
import inorder.pipeline

MODULES = [
    module.name
    for package in (inorder.engines, inorder.pipeline)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
