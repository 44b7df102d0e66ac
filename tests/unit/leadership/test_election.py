"""Who leads follows the diagram; no instance leads without the partition or on an old heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inorder.relay.leadership.election import (
    RECEIVE_DEADLINE_SECONDS,
    TRANSITIONS,
    Assigned,
    Election,
    Event,
    HeartbeatSeen,
    Lost,
    Revoked,
    Sign,
    State,
    Tick,
)

DEADLINE = 5.0


def elect(*events: Event) -> Election:
    election = Election(DEADLINE)
    for event in events:
        election = election.after(event)
    return election


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], State.STANDBY),
        ([Assigned(0)], State.ELECTED),
        ([Assigned(0), HeartbeatSeen(1, sent=0.5)], State.LEADING),
        ([Assigned(0), Tick(100)], State.ELECTED),
        ([Assigned(0), Revoked(1)], State.STANDBY),
        ([Assigned(0), Lost(1)], State.STANDBY),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Revoked(2)], State.STANDBY),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Lost(2)], State.STANDBY),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Tick(5.9)], State.LEADING),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Tick(6)], State.FENCED),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Tick(6), Revoked(7)], State.STANDBY),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Tick(6), HeartbeatSeen(7, sent=6.5)], State.LEADING),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Assigned(2)], State.LEADING),
        ([Assigned(0), HeartbeatSeen(1, sent=1e300)], State.ELECTED),
        ([Assigned(0), HeartbeatSeen(1, sent=1), HeartbeatSeen(2, sent=1e300), Tick(6)], State.FENCED),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Assigned(6)], State.FENCED),
    ],
)
def test_the_state_follows_the_diagram(events: list[Event], state: State) -> None:
    assert elect(*events).state is state


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([HeartbeatSeen(1, sent=1)], "the partition was never ours"),
        ([Assigned(0), HeartbeatSeen(1, sent=1), Revoked(2), HeartbeatSeen(2.1, sent=1.9)], "it is not ours any more"),
        ([Assigned(2), HeartbeatSeen(2.1, sent=1.9)], "it was sent in an earlier term"),
        (
            [Assigned(0), HeartbeatSeen(1, sent=1), Revoked(2), Assigned(3), HeartbeatSeen(3.1, sent=2.5)],
            "it was sent while another may have owned the partition",
        ),
        ([Assigned(0), HeartbeatSeen(9, sent=4)], "it was under way for as long as the deadline"),
        (
            [Assigned(0), HeartbeatSeen(1, sent=1), Tick(6), HeartbeatSeen(20, sent=5)],
            "the broker was away and hands over what had been queued",
        ),
    ],
)
def test_a_heartbeat_that_proves_nothing_makes_no_leader(events: list[Event], why: str) -> None:
    assert not elect(*events).leads, why


def test_the_deadline_counts_from_the_sending_and_the_newest_heartbeat_counts() -> None:
    led = elect(Assigned(0), HeartbeatSeen(4, sent=3), HeartbeatSeen(5, sent=1))
    assert led.after(Tick(7.9)).leads
    assert not led.after(Tick(8)).leads


def test_only_the_owner_sends_heartbeats() -> None:
    owned = {State.ELECTED, State.LEADING, State.FENCED}
    assert {state for state in State if Election(state=state).is_owner} == owned


def test_the_deadline_is_that_of_the_source() -> None:
    assert Election().deadline == RECEIVE_DEADLINE_SECONDS == 5.0


def test_only_a_proof_leads_and_only_an_owner_can_be_proven() -> None:
    leading = {pair for pair, after in TRANSITIONS.items() if after is State.LEADING}
    assert leading == {(State.ELECTED, Sign.PROVEN), (State.FENCED, Sign.PROVEN)}


@pytest.mark.parametrize("state", list(State))
def test_whoever_loses_the_partition_stands_by(state: State) -> None:
    assert TRANSITIONS.get((state, Sign.TAKEN), state) is State.STANDBY


@pytest.mark.parametrize(("state", "event"), list(product(State, [Revoked(0.0), Lost(0.0)])))
def test_losing_it_leaves_no_trust_behind(state: State, event: Event) -> None:
    election = Election(DEADLINE, state, term_began=0, proven_at=0).after(event)
    assert election.after(Assigned(1)).state is State.ELECTED


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_time_alone_never_makes_a_leader(now: float, later: float) -> None:
    for state in State:
        election = Election(DEADLINE, state, term_began=0, proven_at=now)
        assert election.after(Tick(now + later)).leads <= election.leads


@dataclass
class _World:
    """What is really so, kept apart from what the election makes of it."""

    now: float = 0.0
    owns: bool = False
    term_began: float = 0.0
    newest_seen: float = float("-inf")
    sent: list[float] = field(default_factory=list)


class AnyHistory(RuleBasedStateMachine):
    """Every order of events at rising times: heartbeats may be delayed, lost, doubled and reordered."""

    def __init__(self) -> None:
        super().__init__()
        self.world = _World()
        self.election = Election(DEADLINE)

    def happens(self, event: Event) -> None:
        self.election = self.election.after(event)

    @rule(seconds=st.floats(0, 2 * DEADLINE))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.happens(Tick(self.world.now))

    @rule()
    def the_partition_is_assigned(self) -> None:
        if not self.world.owns:
            self.world.term_began = self.world.now
            self.world.newest_seen = float("-inf")
        self.world.owns = True
        self.happens(Assigned(self.world.now))

    @rule(asked=st.booleans())
    def the_partition_is_taken(self, asked: bool) -> None:
        self.world.owns = False
        self.happens(Revoked(self.world.now) if asked else Lost(self.world.now))

    @rule()
    def a_heartbeat_is_sent(self) -> None:
        self.world.sent.append(self.world.now)

    @rule(data=st.data())
    def a_heartbeat_is_read_back(self, data: st.DataObject) -> None:
        if self.world.sent:
            sent = data.draw(st.sampled_from(self.world.sent))
            if self.world.owns and sent >= self.world.term_began:
                self.world.newest_seen = max(self.world.newest_seen, sent)
            self.happens(HeartbeatSeen(self.world.now, sent))

    @invariant()
    def no_instance_leads_without_the_partition(self) -> None:
        assert self.world.owns or not self.election.leads

    @invariant()
    def leads_exactly_while_the_newest_heartbeat_of_the_term_is_young(self) -> None:
        is_young = self.world.now - self.world.newest_seen < DEADLINE
        assert self.election.leads == (self.world.owns and is_young)


TestAnyHistory = AnyHistory.TestCase
