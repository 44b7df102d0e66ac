"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import inorder.journal

MODULES = [
    "inorder.model.journal",
    *(module.name for module in pkgutil.walk_packages(inorder.journal.__path__, "inorder.journal.")),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
