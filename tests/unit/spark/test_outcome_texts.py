"""Outcomes and errors of tasks come back as texts, whole and in order, without a server for each batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from inorder.engines.micro_batch import TEXT_SCHEMA, collect_rows, encode_as_text
from inorder.engines.slice_task import error_row, outcome_row, split_results
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import GuaranteeError

FIRST = SliceOutcome("orders", 3, next_offset=1 << 60, read=5, applied=2, rejected=3, measures={"events": 7})
SECOND = SliceOutcome("a.b_c-d", 0, next_offset=1, read=1, replayed=1)
ERROR = GuaranteeError('It went "back"\n to 7.', hint="Mend it: \u00fc.")


def batch_of(*texts: str) -> Any:
    """A batch as Spark hands it over: its rows are Java's."""
    rows = [SimpleNamespace(getString=lambda _, text=text: text) for text in texts]
    return SimpleNamespace(_jdf=SimpleNamespace(collectAsList=lambda: rows))


def test_what_a_task_tells_is_what_the_driver_hears() -> None:
    task = encode_as_text(lambda _: iter([outcome_row(FIRST), outcome_row(SECOND), error_row(ERROR)]))
    texts = [text for rows in task([]) for text in rows.column("outcome").to_pylist()]
    outcomes, [error] = split_results(collect_rows(batch_of(*texts)))
    assert outcomes == [FIRST, SECOND]
    assert outcomes[0].measures == FIRST.measures
    assert (type(error), str(error)) == (GuaranteeError, str(ERROR))


def test_a_task_tells_each_slice_when_it_is_applied_and_not_at_its_end() -> None:
    asked: list[int] = []

    def applies(_: object) -> Any:
        for number in range(2):
            asked.append(number)
            yield outcome_row(SECOND)

    texts = encode_as_text(applies)([])
    assert asked == []
    next(texts)
    assert asked == [0]


def test_a_batch_without_slices_tells_nothing() -> None:
    assert collect_rows(batch_of()) == []
    assert list(encode_as_text(lambda _: iter([]))([])) == []


def test_the_column_has_the_name_that_spark_was_told() -> None:
    [rows] = encode_as_text(lambda _: iter([outcome_row(FIRST)]))([])
    assert f"{rows.schema.names[0]} string" == TEXT_SCHEMA
