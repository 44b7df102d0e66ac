"""The election: the instance that owns a shard's partition of the leader topic leads the shard (NELI).

All instances of a relay group are members of one consumer group on the topic `inorder.<group>.leader`, which has a
partition for each shard; with one shard this is partition 0. The group's coordinator gives each partition to one of
them. Owning it is not enough, because a member that is disconnected does not learn that it lost the partition. So the
owner sends a heartbeat record to the partition and reads it back: only a round trip through the broker shows that it is
still connected. Without one for as long as the deadline, it fences itself. Every shard has its own election; what
happens to one partition says nothing about another.

               assigned               proven
    STANDBY ─────────────▶ ELECTED ─────────────▶ LEADING ◀─┐ proven
       ▲                      │                   │    ▲ └──┘
       │                      │            silent │    │ proven
       │                      │                   ▼    │
       │                      │                   FENCED
       └──────────────────────┴─────────────────────┘
                    revoked or lost, from any state

`proven`: a heartbeat of our own was read back, sent in this term and less than the deadline ago. `silent`: the newest
such heartbeat was sent a deadline ago. Only LEADING leads.

What is authoritative:

- **Who publishes: the broker's fence** on the shard's `transactional.id` (`relay/drain.py`). Nothing here decides it.

What is only a hint, and may be late, lost or true of two instances at once:

- **Who owns the shard's partition.** The coordinator knows; members learn it later, or not at all while they are
  disconnected.
- **A heartbeat that came back.** It shows a connection at the time it was sent, and nothing about now.
- **The local clock.** It may only make us stop trusting sooner: it ends leadership and never begins it. Times are
  compared with earlier readings of the same clock, never with those of another machine.

Invariants

1. No instance leads without the shard's partition.
2. No instance leads a deadline after it sent the newest heartbeat that it has read back, or later. The deadline is
   counted from the sending, since the broker answered at some unknown time after it.
3. A heartbeat from an earlier term, or one that took a deadline or longer, proves nothing.
4. Time alone never makes a leader.

What if …

| the leader …                          | then                                                                         |
|---|---|
| stops on request                      | it leaves the group; the partition goes to the next one at once              |
| must return the partition             | it no longer leads, and answers once the shard's loop has stopped, or        |
|                                       | after a third of the deadline; then the partition goes to the other one      |
| is killed                             | after `session.timeout.ms` the coordinator gives the partition to another    |
| is paused and wakes up later          | it sees by its clock that the deadline is over and does not lead; the        |
|                                       | coordinator has perhaps given the partition away, which it learns next       |
| is suspended with its machine         | its clock may not have run: it leads on for up to a deadline; the fence      |
|                                       | decides                                                                      |
| loses the broker                      | it fences itself after the deadline, which is shorter than the session       |
| loses the coordinator only            | its heartbeats still come back, and two may lead until the client's own      |
|                                       | session timeout says `lost`; the fence decides                               |
| gets the broker back in time          | it is still the owner, its next heartbeat comes back, it leads again         |

| the surroundings …                    | then                                                                         |
|---|---|
| an instance joins                     | a sticky assignment moves its fair part of the partitions to it and leaves   |
|                                       | the others where they are; with one shard nothing moves                      |
| the broker stops                      | no instance leads; none could publish either                                 |
| the broker comes back                 | the client finds it within 10 s (`reconnect.backoff.max.ms`), and the owner  |
|                                       | leads with its next heartbeat; a member that had left joins again and waits  |
|                                       | a session at most for its former self: 16 s at most in all                   |
| the leader topic is deleted           | no instance leads until a member or the broker itself creates it again       |
| the topic has too few partitions      | a member that joins adds more; members notice within seconds                 |
| the topic has more than the shards    | those beyond mean nothing, but are assigned too: shares may be uneven until  |
|                                       | the topic is deleted                                                         |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

RECEIVE_DEADLINE_SECONDS: Final = 5.0
"""How long a heartbeat is trusted. Below the session timeout, so that the old leader stops before the next begins."""

_NEVER: Final = float("-inf")


class State(Enum):
    STANDBY = "standby"
    """Another instance owns the partition, or none does."""
    ELECTED = "elected"
    """Owns the partition and has not read a heartbeat of this term yet."""
    LEADING = "leading"
    """Owns the partition and has recently read a heartbeat of its own."""
    FENCED = "fenced"
    """Owns the partition as far as it knows, and has read no heartbeat for as long as the deadline."""


class Sign(Enum):
    """What an event means to the state."""

    ASSIGNED = "assigned"
    TAKEN = "taken"
    PROVEN = "proven"
    SILENT = "silent"


TRANSITIONS: Final[dict[tuple[State, Sign], State]] = {
    (State.STANDBY, Sign.ASSIGNED): State.ELECTED,
    (State.ELECTED, Sign.PROVEN): State.LEADING,
    (State.ELECTED, Sign.TAKEN): State.STANDBY,
    (State.LEADING, Sign.SILENT): State.FENCED,
    (State.LEADING, Sign.TAKEN): State.STANDBY,
    (State.FENCED, Sign.PROVEN): State.LEADING,
    (State.FENCED, Sign.TAKEN): State.STANDBY,
}
"""The diagram. A pair that is not here changes nothing."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The coordinator gave us the shard's partition."""

    now: float


@dataclass(frozen=True, slots=True)
class Revoked:
    """The coordinator takes the partition back, or we leave the group."""

    now: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The partition was taken away: we were silent for too long."""

    now: float


@dataclass(frozen=True, slots=True)
class HeartbeatSeen:
    """A heartbeat of our own was read back; `sent` is what our clock said when we sent it."""

    now: float
    sent: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time has passed."""

    now: float


Event = Assigned | Revoked | Lost | HeartbeatSeen | Tick


@dataclass(frozen=True, slots=True)
class Election:
    """What one instance knows of the election of one shard; `after` returns the next state."""

    deadline: float = RECEIVE_DEADLINE_SECONDS
    state: State = State.STANDBY
    term_began: float = _NEVER
    proven_at: float = _NEVER
    """When the newest heartbeat that was read back in this term was sent."""

    @property
    def is_owner(self) -> bool:
        """Whether we own the partition as far as we know, and so send heartbeats."""
        return self.state is not State.STANDBY

    @property
    def leads(self) -> bool:
        """Whether we led at the last event; apply a `Tick` first."""
        return self.state is State.LEADING

    def after(self, event: Event) -> Election:
        """The election once the event has happened; every event is also a tick."""
        match event:
            case Assigned():
                return self._begin(event.now)._tick(event.now)
            case Revoked() | Lost():
                return replace(self, proven_at=_NEVER)._move(Sign.TAKEN)
            case HeartbeatSeen():
                return self._hear(event)._tick(event.now)
            case Tick():
                return self._tick(event.now)
            case _:
                assert_never(event)

    def _begin(self, now: float) -> Election:
        # Assigned while we own it: nothing was taken in between, so the term continues.
        return self if self.is_owner else replace(self, term_began=now, proven_at=_NEVER)._move(Sign.ASSIGNED)

    def _hear(self, event: HeartbeatSeen) -> Election:
        # One that our clock says is not sent yet is not ours, and would be trusted for too long.
        if event.sent > event.now or event.sent < self.term_began or self._is_old(event.sent, event.now):
            return self
        return replace(self, proven_at=max(self.proven_at, event.sent))._move(Sign.PROVEN)

    def _tick(self, now: float) -> Election:
        return self._move(Sign.SILENT) if self._is_old(self.proven_at, now) else self

    def _is_old(self, sent: float, now: float) -> bool:
        return now - sent >= self.deadline

    def _move(self, sign: Sign) -> Election:
        return replace(self, state=TRANSITIONS.get((self.state, sign), self.state))
