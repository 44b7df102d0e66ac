"""Selects which of many similar cases run with `make test`, and which only with `make test-all`.

For a suite over every database and every layout, a few combinations show that a guarantee holds; the rest find the
combination that differs. `make test` runs the few, `make test-all` the rest, which have the marker `full`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

FAST = "fast"
FEW_EXAMPLES = 30
SAME = "same"
DEEP = "deep"
TIMES_DEEPER = 20

# A verdict on a commit is the same each time, so the examples of `make test` and `make test-all` follow from the tests
# alone. New ones are looked for with `make fault`; what it finds becomes an explicit example.
settings.register_profile(FAST, max_examples=FEW_EXAMPLES, derandomize=True)
settings.register_profile(SAME, derandomize=True)
settings.register_profile(DEEP, max_examples=100 * TIMES_DEEPER, deadline=None)
settings.load_profile(SAME)


def few(cases: Iterable[Any], *kept: object) -> list[Any]:
    """Parameters for a fixture or a test: those in `kept` run with `make test`, others only with `make test-all`."""
    found = list(cases)
    if unknown := [case for case in kept if case not in found]:
        raise ValueError(f"There are no such cases: {unknown}. There are: {found}.")
    return [case if case in kept else pytest.param(case, marks=pytest.mark.full) for case in found]


def examples(count: int) -> settings:
    """Settings with `count` examples of a property; few with the profile `fast`, many more with `deep`."""
    profile = settings.get_current_profile_name()
    if profile == FAST:
        count = min(count, FEW_EXAMPLES)
    elif profile == DEEP:
        count *= TIMES_DEEPER
    return settings(max_examples=count, deadline=None)
