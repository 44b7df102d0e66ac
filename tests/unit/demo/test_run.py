"""The demo shows progress, and gives up a path without any, but not one whose Spark is still starting."""

from __future__ import annotations

import io
import re
from typing import Literal

import pytest
from rich.console import Console

from inorder.demo.load import Committed, Ledger
from inorder.demo.path import Position
from inorder.demo.run import FIRST_PATIENCE_SECONDS, PATIENCE_SECONDS, Display, Hops, find_milestones, patience


def ledger_of(committed: int, rolled_back: int = 0) -> Ledger:
    return Ledger([Committed(7, place, {}, is_valid=True) for place in range(committed)], rolled_back)


@pytest.mark.parametrize(
    ("position", "seconds"),
    [
        (Position(waiting=0, applied=0, rejected=0), FIRST_PATIENCE_SECONDS),
        (Position(waiting=9, applied=0, rejected=0), FIRST_PATIENCE_SECONDS),
        (Position(waiting=0, applied=1, rejected=0), PATIENCE_SECONDS),
        (Position(waiting=0, applied=0, rejected=1), PATIENCE_SECONDS),
    ],
)
def test_a_path_that_has_carried_nothing_yet_has_longer_to_begin(position: Position, seconds: float) -> None:
    assert patience(position) == seconds
    assert FIRST_PATIENCE_SECONDS > PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ((0, 0, 0), (10, 0, 0), []),
        ((10, 0, 0), (20, 5, 0), ["Kafka has the first records."]),
        ((100, 90, 0), (100, 90, 1), ["Spark has started; the table has the first rows."]),
        ((100, 90, 1), (100, 90, 24), []),
        ((100, 90, 24), (100, 90, 60), ["100 committed, 90 in Kafka, 60 in the table or set aside."]),
    ],
)
def test_a_pipe_gets_a_line_for_each_milestone(before: Hops, now: Hops, said: list[str]) -> None:
    assert find_milestones(before, now, planned=100) == said


def test_a_milestone_is_printed_once_though_the_count_of_commits_lags() -> None:
    printed = io.StringIO()
    with Display(Console(file=printed, width=100), planned=100) as display:
        for committed, waiting in ((10, 5), (10, 12), (20, 12)):
            display.update(float(committed), ledger_of(committed), Position(waiting=waiting, applied=0, rejected=0))
    assert printed.getvalue() == "Kafka has the first records.\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_display_draws_bars_on_a_terminal_and_prints_lines_elsewhere(is_terminal: bool) -> None:
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=is_terminal, width=100)
    with Display(console, planned=100) as display:
        display.update(1.0, ledger_of(50), Position(waiting=10, applied=0, rejected=0))
        display.update(2.0, ledger_of(90), Position(waiting=0, applied=80, rejected=10))
    assert ("━" in printed.getvalue()) == is_terminal
    assert ("in the table or set aside." in printed.getvalue()) != is_terminal


def draw_last(colours: Literal["standard", "truecolor"], ledger: Ledger, position: Position) -> list[str]:
    """The lines of the last picture, with the codes of their colours."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=colours)
    display = Display(console, planned=100)
    console.print(display.draw(display.look(1.0, ledger, position), ledger.rolled_back))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("colours", ["standard", "truecolor"])
def test_a_full_bar_differs_from_an_empty_one_on_every_terminal(colours: Literal["standard", "truecolor"]) -> None:
    _, transactions, relay, table = draw_last(colours, ledger_of(90, rolled_back=10), Position(0, 0, 0))
    full, also_full, empty = (re.findall(r"(\x1b\[[\d;]+m)━{30}", line) for line in (transactions, relay, table))
    assert full == also_full != empty
    assert full
    assert empty


def test_a_hop_that_has_carried_nothing_yet_is_said_to_start() -> None:
    _, _, relay, table = draw_last("standard", ledger_of(90), Position(waiting=80, applied=0, rejected=0))
    assert "starts" in table
    assert "starts" not in relay
