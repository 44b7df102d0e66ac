"""The broker of the session, and one implementation of the port a test."""

from __future__ import annotations

import pytest

from tests.contract.shard_log.making import Case, in_memory, on_kafka


@pytest.fixture
def properties(kafka_bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": kafka_bootstrap}


@pytest.fixture
def case(request: pytest.FixtureRequest, unique: str) -> Case:
    """To be parametrised with names out of `FENCED` and `UNFENCED`."""
    place, _, unfenced = str(request.param).partition(", ")
    if place == "memory":
        return in_memory(fenced=not unfenced)
    return on_kafka(request.getfixturevalue("properties"), unique, fenced=not unfenced)
