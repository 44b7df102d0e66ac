"""What all tests with servers have."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def new_topics(topics_on_demand: None) -> None:
    """Of every test here."""
