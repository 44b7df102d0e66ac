"""One run of the demo: load, relay and pipeline side by side, until everything committed is in the table."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import orjson
from rich.console import Console

from inorder.demo.display import Display, show
from inorder.demo.load import plan_load
from inorder.demo.path import TOPIC, DemoPath, Position
from inorder.demo.summary import Summary, summarise
from inorder.demo.writers import Ledger, write
from inorder.embedded import Stack, spark_jars
from inorder.model.errors import GuaranteeError, TransientError

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 60.0
"""Without any progress for so long, the demo gives up and says where it stands."""

FIRST_PATIENCE_SECONDS = 240.0
"""The same before the first record has arrived: a busy machine takes more than a minute to start Spark."""


def run(events: int, as_json: bool, seed: int | None = None) -> int:
    """Runs the demo and prints its summary; the exit code is 5 if a guarantee was broken."""
    seed = seed if seed is not None else secrets.randbelow(1_000_000)
    console = Console(stderr=True)
    with Display(console) as display:
        display.say("Starting PostgreSQL, Kafka and Spark …")
        spark_jars()  # here, so that a first download shows its progress and is no part of the figures
        began = time.monotonic()
        with DemoPath(Stack(("postgres", "kafka"))) as path:
            started = time.monotonic() - began
            display.say(f"Writing {events:,} updates of 500 keys (seed {seed}); logs are in {path.folder}.")
            summary, ledger = carry(path, events, seed, display.update)
    summary = _with_times(summary, start=started, total=time.monotonic() - began)
    show(console, summary, ledger.rolled_back)
    if as_json:
        sys.stdout.write(orjson.dumps(summary.as_dict()).decode() + "\n")
    return 0 if summary.holds else GuaranteeError.exit_code


OnLook = Callable[[float, int, Position], None]


def carry(path: DemoPath, events: int, seed: int, on_look: OnLook) -> tuple[Summary, Ledger]:
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
    """Looks at every hop until the last has caught up; returns when each was done, in seconds from the first write."""
    began = moved = time.monotonic()
    seconds: dict[str, float] = {}
    before: tuple[int, Position] | None = None
    while "pipeline" not in seconds:
        threading.Event().wait(LOOK_SECONDS)
        now, position = time.monotonic(), path.position()
        on_look(now, len(ledger.entries), position)
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


def _with_times(summary: Summary, **more: float) -> Summary:
    return replace(summary, seconds={**summary.seconds, **more})
