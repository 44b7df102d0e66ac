"""What Spark tells of a batch becomes the phases of a run, for one query and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from inorder.pipeline.progress import Progress
from inorder.spark.query_progress import QueryProgress


def event(run_id: str) -> Any:
    durations = {"addBatch": 250, "walCommit": 50, "triggerExecution": 320}
    return SimpleNamespace(progress=SimpleNamespace(runId=run_id, batchId=3, numInputRows=9, durationMs=durations))


def test_the_phases_of_a_batch_are_told_in_seconds_without_their_sum() -> None:
    progress = Progress()
    heard = QueryProgress("mine", progress)
    heard.onQueryProgress(event("mine"))
    heard.onQueryProgress(event("mine"))
    assert progress.as_dict()["phase_seconds"] == {"addBatch": 0.5, "walCommit": 0.1}


def test_other_queries_of_the_session_are_not_ours() -> None:
    progress = Progress()
    QueryProgress("mine", progress).onQueryProgress(event("other"))
    assert progress.as_dict()["phase_seconds"] == {}


def test_nothing_else_is_told() -> None:
    heard = QueryProgress("mine", Progress())
    for hook in (heard.onQueryStarted, heard.onQueryIdle, heard.onQueryTerminated):
        cast("Any", hook)(event("mine"))
