"""The curve over workers and partitions: what is asked for, and what is printed."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from rich.console import Console

from inorder.bench.figures import DrainRate
from inorder.bench.options import RelaySetting
from inorder.bench.place import BenchPlace
from inorder.bench.report import ReadBackCheck
from inorder.bench.scaling import ScalingOptions, ScalingPoint, ScalingReport, _config, show_scaling
from inorder.cli.bench import _numbers
from inorder.settings import Settings
from inorder.testing.checker import Verdict

MACHINE = {"cores": 2, "load_average_before": 0.4, "load_average_after": 2.1}


def report(lost: int = 0) -> ScalingReport:
    whole = ReadBackCheck(1_000, 10, Verdict())
    points = [
        ScalingPoint(1, 4, DrainRate(12_345.6, 2.0, 9.0), whole),
        ScalingPoint(2, 4, DrainRate(None, 0.0, 9.0), ReadBackCheck(1_000, 10, Verdict(lost=lost))),
    ]
    return ScalingReport(ScalingOptions((1, 2), (4,), 1_000, 10, "resident"), points, MACHINE)


def test_each_point_is_a_line_and_the_machine_is_named() -> None:
    out = io.StringIO()
    show_scaling(Console(file=out, width=120), report())
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["1", "4", "12,346", "2.00", "9.0"] in lines
    assert ["2", "4", "-", "0.00", "9.0"] in lines
    assert "2 cores, load average 0.4 before and 2.1 after." in out.getvalue()


def test_a_point_that_lost_something_breaks_the_report() -> None:
    assert report().holds
    assert not report(lost=1).holds
    assert [each["partitions"] for each in report().as_dict()["points"]] == [4, 4]


def test_numbers_of_an_option() -> None:
    assert _numbers("1, 2,16", "--workers") == (1, 2, 16)
    for text in ("", "0", "1,,2", "two", "-1"):
        with pytest.raises(typer.BadParameter):
            _numbers(text, "--workers")


def test_the_job_of_a_point_creates_its_table(tmp_path: Path) -> None:
    kafka, url = {"bootstrap.servers": "localhost:9092"}, "postgresql+psycopg://inorder@localhost/inorder"
    stack = SimpleNamespace(folder=tmp_path, settings=lambda: {"kafka": kafka, "database": {"url": url}})
    place = BenchPlace(cast("Any", stack), lambda _: None, RelaySetting())
    settings = Settings.load(_config(place, report().options, "spark://localhost:7077", "scaling_1_4"))
    assert [target.table for target in settings.pipeline.targets] == ["scaling_1_4"]
    assert settings.pipeline.may_create_tables
