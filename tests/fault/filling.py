"""The job `upsert` as a service in a separate process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inorder.embedded.stack import Program
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.table import SqlTableStores
from tests.fault.engine_ordeal import PARTITIONS, Stage
from tests.integration.pipeline.engines import upsert_work

WAIT_SECONDS = 180.0
"""Timeout of a start or a step; clusters are slow on two cores."""
INORDER = (sys.executable, "-m", "inorder.cli")


@contextmanager
def filling(
    stage: Stage, folder: Path, engine: str, *, master: str = "local[2,4]", program: Sequence[str] = INORDER
) -> Iterator[Program]:
    """Runs a service that fills the table; when the block begins it has applied something of every partition."""
    own = TableMapping("upsert:messages", stage.topic, "messages")
    upsert_work(SqlTableStores(stage.url, own), own)
    config = stage.settings(folder, engine, master)
    service = Program("driver", [*program, "pipeline", "run", "upsert", "--config", str(config)], folder)
    stage.send(1)
    try:
        service.start()
        stage.eventually(lambda: service.has_ended() or len(stage.pointers()) == PARTITIONS, WAIT_SECONDS)
        service.check()
        yield service
    finally:
        service.stop()
        print(service.log_path.read_text(errors="replace"))  # noqa: T201 its log, if the test fails
