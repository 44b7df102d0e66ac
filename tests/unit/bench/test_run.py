"""A run writes its report to stdout and stderr and ends with the exit code that scripts rely on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from inorder.bench import run as module
from inorder.bench.options import PipelineOptions, RelayOptions, RelaySetting
from inorder.bench.run import AnyReport
from inorder.bench.wake_up import WakeUpOptions
from inorder.model.errors import ConfigurationError
from tests.unit.bench import test_relay_report as relay
from tests.unit.bench import test_report as pipeline
from tests.unit.bench import test_wake_up as wake_up

Run = Callable[[bool], int]

RUNS: dict[str, tuple[str, Run, AnyReport, AnyReport]] = {
    "relay": (
        "relay_report",
        lambda as_json: module.run_relay("goharvest", RelayOptions(), as_json),
        relay.REPORT,
        relay.BROKEN,
    ),
    "pipeline": (
        "pipeline_report",
        lambda as_json: module.run_pipeline("raw-copy", PipelineOptions(), as_json),
        pipeline.REPORT,
        pipeline.BROKEN,
    ),
    "wake-up": (
        "wake_up_report",
        lambda as_json: module.run_wake_up(WakeUpOptions(), as_json),
        wake_up.REPORT,
        wake_up.BROKEN,
    ),
}
EVERY = pytest.mark.parametrize("name", RUNS)


def measured(monkeypatch: pytest.MonkeyPatch, name: str, report: AnyReport) -> Run:
    """Puts a report in the place of a measurement."""
    function, run, _, _ = RUNS[name]

    def measure(*given: Any) -> AnyReport:
        given[-1](f"Measuring the {name}.")
        return report

    monkeypatch.setattr(module, function, measure)
    return run


@EVERY
def test_the_report_is_the_last_line_of_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    report = RUNS[name][2]
    assert measured(monkeypatch, name, report)(True) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1]) == json.loads(json.dumps(report.as_dict()))
    assert f"Measuring the {name}." in printed.err


@EVERY
def test_without_json_everything_goes_to_the_person(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert measured(monkeypatch, name, RUNS[name][2])(False) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "whole and in order" in printed.err


@EVERY
def test_a_broken_guarantee_ends_with_5_and_is_still_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert measured(monkeypatch, name, RUNS[name][3])(True) == 5
    assert json.loads(capsys.readouterr().out)["checks"]["hold"] is False


def test_a_setting_that_is_not_there_is_refused_before_anything_is_started() -> None:
    options = RelayOptions(setting=RelaySetting(strategy="guess"))
    with pytest.raises(ConfigurationError, match="guess"):
        module.relay_report("librdkafka", options, lambda _: None)


def test_an_engine_that_is_not_there_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ConfigurationError, match="diesel"):
        module.pipeline_report("raw-copy", PipelineOptions(engine="diesel"), lambda _: None)
