"""One run of the demo: load, relay and pipeline side by side, until everything committed is in the table."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

import orjson
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from inorder.demo.load import Ledger, plan_load, write
from inorder.demo.path import TOPIC, DemoPath, DemoSummary, Position, summarise
from inorder.embedded import Stack, spark_jars
from inorder.model.errors import GuaranteeError, TransientError

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 60.0
"""Without any progress for so long, the demo fails and prints the position of each hop."""

FIRST_PATIENCE_SECONDS = 240.0
"""The same before the first record has arrived: a busy machine takes more than a minute to start Spark."""


def run(events: int, as_json: bool, seed: int | None = None, keep: Callable[[DemoPath], None] | None = None) -> int:
    """Runs the demo and prints its summary; the exit code is 5 if a guarantee was broken.

    `keep` is called after that, while servers, relay and pipeline still run; they stop when it returns.
    """
    seed = seed if seed is not None else secrets.randbelow(1_000_000)
    console = Console(stderr=True)
    with ExitStack() as running:
        with Display(console, events) as display:
            display.say("Starting PostgreSQL, Kafka and Spark …")
            spark_jars()  # here, so that a first download shows its progress and does not count
            began = time.monotonic()
            path = running.enter_context(DemoPath(Stack(("postgres", "kafka"))))
            started = time.monotonic() - began
            display.say(f"Writing {events:,} updates of 500 keys (seed {seed}); logs are in {path.folder}.")
            summary, ledger = carry(path, events, seed, display.update)
            if keep is None:
                running.close()
        summary = _with_times(summary, start=started, total=time.monotonic() - began)
        show(console, summary, ledger.rolled_back)
        if as_json:
            sys.stdout.write(orjson.dumps(summary.as_dict()).decode() + "\n")
            sys.stdout.flush()
        if keep is not None:
            keep(path)
        else:
            console.print(NEXT, highlight=False, soft_wrap=True)
    return 0 if summary.holds else GuaranteeError.exit_code


NEXT = """\
What to try next:
  inorder demo --events 100000   more of the same, with a new seed
  inorder demo --keep            the same, and then the web pages of it
  inorder up --folder servers    PostgreSQL and Kafka of your own, then docs/quickstart.md
  inorder init                   settings for your database and your Kafka
  inorder bench relay            how fast the relay is on this machine"""


OnLook = Callable[[float, Ledger, Position], None]


def carry(path: DemoPath, events: int, seed: int, on_look: OnLook) -> tuple[DemoSummary, Ledger]:
    """Starts relay and pipeline, writes the load, waits until all of it has arrived, and checks it."""
    ledger, stop = Ledger(), threading.Event()
    path.pipeline.start()
    path.relay.start()
    with ThreadPoolExecutor(1, thread_name_prefix="demo-load") as pool:
        writing = pool.submit(write, path.url, TOPIC, plan_load(events, seed), ledger, stop)
        try:
            seconds = _watch(path, ledger, writing, on_look)
        finally:
            stop.set()
    return summarise(path, ledger.entries, seconds), ledger


def _watch(path: DemoPath, ledger: Ledger, writing: Future[None], on_look: OnLook) -> dict[str, float]:
    """Polls every hop until the last has caught up; returns when each was done, in seconds from the first write."""
    began = moved = time.monotonic()
    seconds: dict[str, float] = {}
    before: tuple[int, Position] | None = None
    while "pipeline" not in seconds:
        threading.Event().wait(LOOK_SECONDS)
        now, position = time.monotonic(), path.position()
        on_look(now, ledger, position)
        path.relay.check()
        path.pipeline.check()
        if before != (len(ledger.entries), position):
            before, moved = (len(ledger.entries), position), now
        if now - moved > patience(position):
            raise _stuck(path, len(ledger.entries), position)
        for hop in _done(writing, position, len(ledger.entries)):
            seconds.setdefault(hop, now - began)
    return seconds


def patience(position: Position) -> float:
    """How long nothing may move, in seconds."""
    return PATIENCE_SECONDS if position.processed else FIRST_PATIENCE_SECONDS


def _done(writing: Future[None], position: Position, committed: int) -> list[str]:
    """The hops that have nothing left to do."""
    if not writing.done():
        return []
    writing.result()
    if position.waiting:
        return ["write"]
    return ["write", "relay", "pipeline"] if position.processed >= committed else ["write", "relay"]


def _stuck(path: DemoPath, committed: int, position: Position) -> TransientError:
    return TransientError(
        f"Nothing moved for {patience(position):.0f} s: {committed} updates committed, {position.waiting} wait in the "
        f"outbox, {position.processed} have reached the table.",
        hint=f"The logs of relay, pipeline and servers are in {path.folder}.",
    )


def _with_times(summary: DemoSummary, **more: float) -> DemoSummary:
    return replace(summary, seconds={**summary.seconds, **more})


# The display on stderr: on a terminal a bar for each hop, with its rate and its lag; elsewhere a line now and then.

Hops = tuple[int, int, int]
"""How many updates are committed, in Kafka, and in the table or set aside."""

_WINDOW = 12
"""Samples that a rate is taken over."""


def find_milestones(before: Hops, now: Hops, planned: int) -> list[str]:
    """What has become true between two looks, for output that cannot be redrawn: a few lines in a whole run."""
    lines = []
    if now[1] and not before[1]:
        lines.append("Kafka has the first records.")
    if now[2] and not before[2]:
        lines.append("Spark has started; the table has the first rows.")
    quarter = max(1, planned // 4)
    if now[2] // quarter > before[2] // quarter:
        lines.append(f"{now[0]:,} committed, {now[1]:,} in Kafka, {now[2]:,} in the table or set aside.")
    return lines


class Display:
    """Shows how far each hop is."""

    def __init__(self, console: Console, planned: int) -> None:
        self._console = console
        self._planned = planned
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._looks: deque[tuple[float, Hops]] = deque(maxlen=_WINDOW)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Prints a line above the table."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def update(self, now: float, ledger: Ledger, position: Position) -> None:
        """Redraws the bars, or prints what has become true."""
        before = self._looks[-1][1] if self._looks else (0, 0, 0)
        hops = self.look(now, ledger, position)
        if self._console.is_terminal:
            self._live.update(self.draw(hops, ledger.rolled_back))
        else:
            for line in find_milestones(before, hops, self._planned):
                self.say(line)

    def look(self, now: float, ledger: Ledger, position: Position) -> Hops:
        """Keeps the positions, from which the rates are taken."""
        committed = len(ledger.entries)
        # The writers count an update shortly after its commit, so the outbox may be ahead of their count.
        earlier = self._looks[-1][1][1] if self._looks else 0
        hops = (committed, max(committed - position.waiting, position.processed, earlier), position.processed)
        self._looks.append((now, hops))
        return hops

    def draw(self, hops: Hops, rolled_back: int) -> Table:
        """A bar for each hop."""
        table = Table(box=None, pad_edge=False)
        for heading in ("hop", "", "position", "per second", "behind"):
            table.add_column(heading, justify="left" if heading in ("hop", "") else "right")
        names = ("your transactions", "relay to Kafka", "Spark to table")
        for place, name in enumerate(names):
            behind = f"{hops[0] - hops[place]:,}" if place else ""
            rate = f"{self._rate(place):,.0f}" if hops[place] or not place else "starts"
            # What is committed is the whole for the hops behind it; how much will be rolled back is not known before.
            # The default colours of a full bar and of an empty one are the same on a terminal of 16 colours.
            bar = ProgressBar(
                total=max(1, hops[0] if place else self._planned - rolled_back),
                completed=hops[place],
                width=30,
                complete_style="cyan",
                finished_style="green",
            )
            table.add_row(name, bar, f"{hops[place]:,}", rate, behind)
        return table

    def _rate(self, place: int) -> float:
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return (last[place] - first[place]) / (ended - began) if ended > began else 0.0


def show(console: Console, summary: DemoSummary, rolled_back: int) -> None:
    """Prints the summary."""
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
