"""Outcomes and errors come back from Spark's tasks as they were."""

from __future__ import annotations

from pyspark.sql import Row

from inorder.engines.slice_task import error_row, outcome_row, split_results
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import GuaranteeError


def test_an_outcome_arrives_with_its_measures() -> None:
    sent = SliceOutcome(
        "journal", 3, next_offset=9, read=5, applied=4, ignored=1, measures={"records": 4, "round#2": 1}
    )
    [row] = outcome_row(sent).to_pylist()
    [found], errors = split_results([Row(**row)])
    assert (found, found.measures, errors) == (sent, sent.measures, [])


def test_an_error_arrives_with_its_words() -> None:
    [row] = error_row(GuaranteeError("moved back", hint="look")).to_pylist()
    outcomes, [error] = split_results([Row(**row)])
    assert (outcomes, type(error), error.message, error.hint) == ([], GuaranteeError, "moved back", "look")
