"""Stages for tests of the job `replicate`, on either store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from inorder.embedded import Cassandra, Postgres
from tests.conftest import Eventually
from tests.fault.journal_ordeal import JournalStage, journal_stage

LONG = pytest.mark.fault
ENGINES = ("resident", "micro-batch")
STORES = ("postgres", "cassandra")

SOME = "some steps"
EVERY = "every step"
"""The parameters of a test through steps: a short form and a long one."""

NewStage = Callable[..., JournalStage]
"""Creates a stage on the session's server of a kind, or at a URL."""


@pytest.fixture
def fresh_url(postgres: Postgres, unique: str) -> Iterator[str]:
    """A second database, for the expected content of the store."""
    yield postgres.create_database(f"{unique}x")
    postgres.drop_database(f"{unique}x")


@pytest.fixture
def new_stage(
    request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path, eventually: Eventually
) -> Iterator[NewStage]:
    """Creates stages, and removes them after the test."""
    with ExitStack() as stack:

        def make(store: str, **more: Any) -> JournalStage:
            if store == "postgres":
                url = request.getfixturevalue("postgres_url")
            elif store == "cassandra":
                server: Cassandra = request.getfixturevalue("cassandra")
                url = f"{server.url}/{unique}"
            else:
                url = store
            return stack.enter_context(journal_stage(kafka_bootstrap, unique, url, tmp_path, eventually, **more))

        yield make
