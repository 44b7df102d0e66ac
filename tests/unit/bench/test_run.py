"""A run tells its report on both channels and ends with the code that scripts rely on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from inorder.bench import run as module
from inorder.bench.options import Options
from inorder.bench.report import Report
from tests.unit.bench.test_report import BROKEN, REPORT


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Report]:
    """Puts a report in the place of a measurement."""
    given = {"report": REPORT}

    def measured(bench: str, peer: str, options: Options, say: Any) -> Report:
        say(f"Measuring {bench} against {peer}.")
        return replace(given["report"], rows=options.rows)

    monkeypatch.setattr(module, "measured", measured)
    return given


@pytest.mark.usefixtures("measures")
def test_the_report_is_the_last_line_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.run("relay", "librdkafka", Options(rows=7), as_json=True) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1]) == replace(REPORT, rows=7).as_dict()
    assert "Measuring relay against librdkafka." in printed.err


@pytest.mark.usefixtures("measures")
def test_without_json_everything_goes_to_the_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.run("relay", "librdkafka", Options(), as_json=False) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "inorder carries 0.25 times" in printed.err


def test_a_broken_guarantee_ends_with_5_and_is_still_told(
    measures: dict[str, Report], capsys: pytest.CaptureFixture[str]
) -> None:
    measures["report"] = BROKEN
    assert module.run("relay", "librdkafka", Options(), as_json=True) == 5
    assert json.loads(capsys.readouterr().out)["checks"]["hold"] is False
