"""`inorder bench relay`: our relay and a peer take turns on the same broker and the same database.

Every trial starts a new process on a new topic. Who goes first changes with each round, so that neither always finds
the machine as the other left it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from inorder.bench.contender import Contender
from inorder.bench.load import Load
from inorder.bench.options import FILL_CAP_SECONDS, RelayOptions
from inorder.bench.ours import our_side
from inorder.bench.peers.choice import PEERS
from inorder.bench.place import BenchPlace
from inorder.bench.relay_report import DrainCase, LiveCase
from inorder.bench.trial import DrainTrial, LiveTrial

WARM_ROWS = 100_000
WARM_KEYS = 1_000
WARM_RATE = 2_000
WARM_SECONDS = 4.0

AnyTrial = TypeVar("AnyTrial", DrainTrial, LiveTrial)


def bench_relay(place: BenchPlace, peer: str, options: RelayOptions) -> tuple[list[DrainCase], list[LiveCase]]:
    """All cases, each with as many trials a side as there are repeats."""
    contest = Contest(place, our_side(place, options), PEERS[peer].make(place, options), options)
    contest.warm_broker()
    return [contest.drain(load) for load in options.loads], [contest.live()] if options.live else []


class Contest:
    """Two sides that take turns."""

    def __init__(self, place: BenchPlace, ours: Contender, peer: Contender, options: RelayOptions) -> None:
        self._place = place
        self._ours = ours
        self._peer = peer
        self._options = options
        self._number = 0

    def warm_broker(self) -> None:
        """Large and small requests: the first ones of a broker's life are slow, and neither side shall pay for that."""
        task = {"kafka": self._place.kafka, "topic": self._place.topic("bench-warm-up")}
        with self._place.worker("send-all", **task, rows=WARM_ROWS, keys=WARM_KEYS) as sender:
            sender.result(FILL_CAP_SECONDS)
        with self._place.worker("send-live", **task, rate=WARM_RATE, seconds=WARM_SECONDS, warm_seconds=0.0) as sender:
            sender.result(FILL_CAP_SECONDS)

    def drain(self, load: Load) -> DrainCase:
        """One backlog."""
        title = f"drain of {load.rows:,}, keys {load.keys:,}, headers {load.headers}"
        ours, peer = self._alternating(title, lambda side, number: side.drain(load, number), _drain_words)
        return DrainCase(load.rows, load.keys, load.headers, ours, peer)

    def live(self) -> LiveCase:
        """Live records."""
        schedule = self._options.schedule
        title = f"live, {schedule.rate:,} a second for {schedule.seconds:g} s"
        ours, peer = self._alternating(title, lambda side, number: side.live(number), _live_words)
        return LiveCase(schedule.rate, schedule.seconds, ours, peer)

    def _alternating(
        self, title: str, trial: Callable[[Contender, int], AnyTrial], words: Callable[[AnyTrial], str]
    ) -> tuple[list[AnyTrial], list[AnyTrial]]:
        ours, peer = list[AnyTrial](), list[AnyTrial]()
        for turn in range(self._options.repeats):
            sides = [(self._ours, ours), (self._peer, peer)]
            for side, trials in sides if turn % 2 == 0 else reversed(sides):
                self._number += 1
                trials.append(trial(side, self._number))
                self._place.say(f"{title}: {side.name} {words(trials[-1])}")
        return ours, peer


def _drain_words(trial: DrainTrial) -> str:
    rate = trial.drain.records_per_second
    speed = "too quick to rate" if rate is None else f"{rate:,.0f} a second"
    return speed if trial.is_whole else f"{speed} (window)"


def _live_words(trial: LiveTrial) -> str:
    latency = trial.latency
    return f"p50 {latency.get('p50', '-')} ms, p99 {latency.get('p99', '-')} ms"
