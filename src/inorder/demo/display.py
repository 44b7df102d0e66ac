"""The live picture of the demo on stderr: a line a hop, with its rate and how far it is behind."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from inorder.demo.path import Position
from inorder.demo.summary import Summary

_WINDOW = 12
"""Looks that a rate is taken over."""


class Display:
    """Shows each hop's position; on a pipe it prints nothing until the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._looks: deque[tuple[float, tuple[int, int, int]]] = deque(maxlen=_WINDOW)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line above the picture."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def update(self, now: float, committed: int, position: Position) -> None:
        """Draws the picture anew."""
        published = max(committed - position.waiting, position.processed)
        hops = (committed, published, position.processed)
        self._looks.append((now, hops))
        if self._console.is_terminal:
            self._live.update(self._table(hops))

    def _table(self, hops: tuple[int, int, int]) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in ("hop", "position", "per second", "behind"):
            table.add_column(heading, justify="left" if heading == "hop" else "right")
        names = ("your transactions", "relay to Kafka", "Spark to table")
        for place, name in enumerate(names):
            behind = f"{hops[0] - hops[place]:,}" if place else ""
            table.add_row(name, f"{hops[place]:,}", f"{self._rate(place):,.0f}", behind)
        return table

    def _rate(self, place: int) -> float:
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return (last[place] - first[place]) / (ended - began) if ended > began else 0.0


def show(console: Console, summary: Summary, rolled_back: int) -> None:
    """The end, in words."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column()
    figures = summary.as_dict()
    meanings = {
        "committed": f"updates in committed transactions ({rolled_back:,} more were rolled back)",
        "published": "records in the topic",
        "applied": "records folded into the table",
        "rejected": "invalid records, set aside in inorder_dead_letter",
        "lost": "committed but not delivered, or not in the table",
        "duplicated": "delivered or applied more than once",
        "out_of_order": "delivered after a newer event of their key",
    }
    for name, meaning in meanings.items():
        table.add_row(f"{figures[name]:,}", f"{name.replace('_', ' ')}: {meaning}")
    console.print(table, highlight=False)
    spans = ", ".join(f"{name} {value:.1f}" for name, value in summary.seconds.items())
    console.print(f"seconds: {spans}", highlight=False)
    for example in summary.verdict.examples:
        console.print(f"  {example}", style="red", highlight=False)
    verdict = "Every guarantee held." if summary.holds else "A guarantee was broken."
    console.print(verdict, style="green" if summary.holds else "bold red", highlight=False)
