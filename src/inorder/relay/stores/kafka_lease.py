"""A member of the group that elects: takes part in `leadership/election.py` for every shard, on a thread of its own."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.admin import ensure_partitions, ensure_topic
from inorder.kafka.errors import CLIENT_LOG, error_of, meaning
from inorder.model.errors import ConfigurationError, InorderError
from inorder.relay.leadership.election import (
    RECEIVE_DEADLINE_SECONDS,
    Assigned,
    Election,
    Event,
    HeartbeatSeen,
    Lost,
    Revoked,
    State,
    Tick,
)
from inorder.relay.leadership.share import HandOver

log = logging.getLogger("inorder.leadership")

DEFAULTS: Mapping[str, object] = {
    # A killed leader is missed after it. The least that brokers allow (group.min.session.timeout.ms), unless they are
    # told otherwise.
    "session.timeout.ms": 6_000,
    # How soon those who stay hear that somebody came or left.
    "heartbeat.interval.ms": 300,
}
"""What users may change."""

OURS: Mapping[str, object] = {
    # The session of the newer protocol is a setting of the broker, 45 s by default.
    "group.protocol": "classic",
    # Sticky, so that a newcomer takes its fair part and no more; cooperative, so that what stays is not interrupted.
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "fetch.wait.max.ms": 100,
    # A topic that grew is noticed after it.
    "topic.metadata.refresh.interval.ms": 5_000,
}
"""What the protocol depends on."""

TOPIC_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "segment.ms": "3600000",
}

_EVENTS: Mapping[State, str] = {
    State.STANDBY: "leadership.revoked",
    State.ELECTED: "leadership.elected",
    State.LEADING: "leadership.acquired",
    State.FENCED: "leadership.fenced",
}

_MISCONFIGURED = frozenset({KafkaError._INVALID_ARG, KafkaError.INVALID_SESSION_TIMEOUT})


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """How long a member of the election waits, in seconds, and for what."""

    poll: float = 0.1
    """For a record, before it looks at its duties again."""
    beat: float = 0.5
    """Between heartbeats of the owner."""
    back_off: float = 1.0
    """Before it joins again, after a failure."""
    make_topic: float = 3.0
    """For the broker to make the leader topic."""
    hand_over: float = 1.5
    """For the loops of shards that go to another, to stop. A third of the deadline at most: meanwhile no heartbeat is
    read for the shards that stay."""
    leave: float = 6.0
    """For leaving the group; the client itself gives up on a broker that is away after 5 s."""


class GroupMember:
    """One membership, from joining to leaving; what it hears ends with it."""

    def __init__(
        self,
        properties: dict[str, object],
        topic: str,
        owner: str,
        shards: int,
        limits: ElectionTimes,
        clock: Callable[[], float],
    ) -> None:
        self._properties = properties
        self._topic = topic
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._deadline = receive_deadline(properties)
        self._lock = threading.RLock()
        self._elections = [Election(self._deadline) for _ in range(shards)]
        self._notices = [HandOver() for _ in range(shards)]
        self._trouble: InorderError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="inorder-leadership", daemon=True)

    def join(self) -> None:
        """Begins to take part."""
        self._thread.start()

    def leave(self) -> None:
        """Leaves the group, so that its partitions go to others at once."""
        self._stop.set()
        self._thread.join(self._limits.leave)

    def has_ended(self) -> bool:
        """Whether the thread is gone, and so nothing is heard any more."""
        return not self._thread.is_alive()

    def leads(self, shard: int) -> bool:
        """Whether we lead the shard; this is what its loop is told."""
        with self._lock:
            leads = self.now(shard).leads
            self._notices[shard].tell(leads)
        return leads

    def stopped(self, shard: int) -> None:
        """The shard's loop has ended: nobody need wait for it."""
        self._notices[shard].stopped()

    def now(self, shard: int) -> Election:
        """How the election stands. Whoever asks looks at the clock himself: our thread may be the one that stalls."""
        return self._note(shard, Tick(self._clock()))

    def take_trouble(self) -> InorderError | None:
        """What hindered the thread since the last time, told once."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def _take_part(self) -> None:
        """The thread: in the group for as long as nobody stops it, joining again after every failure."""
        while not self._stop.is_set():
            try:
                self._be_in_the_group()
            except KafkaException as exception:
                self._on_error(error_of(exception))
            except InorderError as error:
                self._trouble = error
            finally:
                self._note_all(range(len(self._elections)), Lost(self._clock()))
            self._stop.wait(self._limits.back_off)

    def _be_in_the_group(self) -> None:
        self._make_topic()
        heartbeat = Heartbeat(self._properties, self._topic, self._owner, timeout=self._deadline)
        # The client id is what the broker tells others about a member, so `inorder relay status` can name us.
        ours = {**OURS, "group.id": self._topic, "client.id": self._owner, "error_cb": self._on_error}
        consumer = Consumer({**DEFAULTS, **self._properties, **ours}, logger=CLIENT_LOG)
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stop.is_set():
                self._look(consumer)
                self._beat(heartbeat)
        finally:
            consumer.close()  # leaves the group at once

    def _make_topic(self) -> None:
        shards, seconds = len(self._elections), self._limits.make_topic
        ensure_topic(self._properties, self._topic, shards, TOPIC_CONFIG, seconds=seconds)
        if shards > 1:
            ensure_partitions(self._properties, self._topic, shards, seconds=seconds)

    def _beat(self, heartbeat: Heartbeat) -> None:
        for shard in range(len(self._elections)):
            now = self._clock()
            if self._note(shard, Tick(now)).is_owner:
                heartbeat.send_if_due(shard, now, self._limits.beat)

    def _look(self, consumer: Consumer) -> None:
        message = consumer.poll(self._limits.poll)
        if message is None:
            return
        if (error := message.error()) is not None:
            raise KafkaException(error)
        self._read(message)

    def _read(self, message: Message) -> None:
        sent, partition = sent_by(self._owner, message.value()), message.partition()
        if sent is not None and partition is not None:
            self._note_all([partition], HeartbeatSeen(self._clock(), sent))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From the end: what was sent before proves nothing, and asking for committed offsets takes time.
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, OFFSET_END) for place in partitions])
        self._note_all(_numbers(partitions), Assigned(self._clock()))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others get these partitions when this returns, so the loops of their shards should have stopped by then."""
        self._note_all(_numbers(partitions), Revoked(self._clock()))
        until = self._clock() + min(self._limits.hand_over, self._deadline / 3)
        for shard in self._ours(_numbers(partitions)):
            if not self._notices[shard].wait(until - self._clock()):
                log.warning("leadership.hand_over_late", extra={"topic": self._topic, "shard": shard})

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_all(_numbers(partitions), Lost(self._clock()))

    def _on_error(self, error: KafkaError) -> None:
        doing = f"Taking part in the election on {self._topic!r}"
        if error.code() in _MISCONFIGURED:
            hint = 'Correct [kafka]; kafka."session.timeout.ms" must lie between the limits of broker and client.'
            self._trouble = ConfigurationError(f"{doing}: {error.str().strip()} ({error.name()}).", hint=hint)
        else:
            self._trouble = meaning(error, doing)

    def _ours(self, partitions: Iterable[int]) -> list[int]:
        # A topic made for more shards than there are now has partitions that mean nothing.
        return [number for number in partitions if number < len(self._elections)]

    def _note_all(self, partitions: Iterable[int], event: Event) -> None:
        for shard in self._ours(partitions):
            self._note(shard, event)

    def _note(self, shard: int, event: Event) -> Election:
        """A shard's election after an event; all threads come here."""
        with self._lock:
            before = self._elections[shard].state
            self._elections[shard] = found = self._elections[shard].after(event)
        if found.state is not before:
            self._tell(shard, before, found.state)
        return found

    def _tell(self, shard: int, before: State, state: State) -> None:
        if state is State.LEADING:
            self._trouble = None
        level = logging.WARNING if state is State.FENCED else logging.INFO
        where = {"topic": self._topic, "shard": shard, "owner": self._owner}
        log.log(level, _EVENTS[state], extra={"before": before.value, **where})


def receive_deadline(properties: Mapping[str, object]) -> float:
    """How long a heartbeat is trusted, in seconds: less than the session, however short that is set."""
    session = str({**DEFAULTS, **properties}["session.timeout.ms"])
    if not session.isdigit():
        raise ConfigurationError(f'kafka."session.timeout.ms" = {session!r} is not a number of milliseconds.')
    return min(RECEIVE_DEADLINE_SECONDS, int(session) / 1000 * 5 / 6)


def _numbers(partitions: list[TopicPartition]) -> list[int]:
    return [place.partition for place in partitions]


# Leadership `kafka`: a lease for each shard, all held through one membership of the group's election.


class KafkaLeases:
    """What one instance holds in a relay group: partition i of the leader topic is the lease of shard i.

    >>> leases = KafkaLeases({"bootstrap.servers": "127.0.0.1:9092"}, group="orders", owner="host/1", shards=4)
    >>> lease = leases.lease(3)  # asking it for the first time joins the group
    """

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        group: str,
        owner: str,
        shards: int = 1,
        limits: ElectionTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        receive_deadline(properties)  # refuses a wrong session here, where the caller sees it
        topic = leader_topic(group)
        self._new_member = partial(
            GroupMember, dict(properties), topic, owner, shards, limits or ElectionTimes(), clock
        )
        self._shards = shards
        self._lock = threading.Lock()
        self._member: GroupMember | None = None
        self._in_use: set[int] = set()

    def lease(self, shard: int = 0) -> KafkaLease:
        """The lease of one shard."""
        if not 0 <= shard < self._shards:
            raise ConfigurationError(f"There is no shard {shard}: relay.shards = {self._shards}.")
        return KafkaLease(self, shard)

    def state(self, shard: int) -> State:
        """Where this instance stands at the moment, in the election of one shard."""
        member = self._member
        return member.now(shard).state if member else State.STANDBY

    def acquire(self, shard: int) -> bool:
        """Whether this instance leads the shard now."""
        member = self._joined(shard)
        if member.leads(shard):
            return True
        trouble = member.take_trouble()
        if trouble is not None:
            raise trouble
        return False

    def release(self, shard: int) -> None:
        """Gives up one shard; the last one leaves the group. May be called twice."""
        with self._lock:
            self._in_use.discard(shard)
            member, is_last = self._member, not self._in_use
            if is_last:
                self._member = None
        if member is not None:
            member.stopped(shard)
            if is_last:
                member.leave()

    def _joined(self, shard: int) -> GroupMember:
        with self._lock:
            self._in_use.add(shard)
            if self._member is None or self._member.has_ended():
                self._member = self._new_member()
                self._member.join()
            return self._member


class KafkaLease:
    """A `Lease` that the owner of one shard's partition of the leader topic holds."""

    def __init__(self, leases: KafkaLeases, shard: int) -> None:
        self._leases = leases
        self._shard = shard

    @property
    def state(self) -> State:
        """Where this instance stands at the moment."""
        return self._leases.state(self._shard)

    def acquire(self) -> bool:
        """Whether this instance leads now. The first call joins the election; what hinders it is raised once."""
        return self._leases.acquire(self._shard)

    def holds(self) -> bool:
        """Not after this instance has fenced itself, because it hears nothing of its own heartbeats."""
        return self.state is not State.FENCED

    def release(self) -> None:
        """Gives the shard up. Its partition goes to another when all shards of this instance are given up."""
        self._leases.release(self._shard)

    def arbitrates(self) -> bool:
        """Whoever waits is next when the owner of the partition leaves or falls silent."""
        return True


def leader_topic(group: str) -> str:
    """The topic, and the consumer group on it, by which a relay group elects the leader of each shard."""
    return f"inorder.{group}.leader"


# Heartbeats of the election: records by which the owner of a partition shows itself that it is connected.


class Heartbeat:
    """Sends heartbeats of one owner: its name, and when its own clock said that they were sent."""

    def __init__(self, properties: Mapping[str, object], topic: str, owner: str, *, timeout: float) -> None:
        # One that is late proves nothing, so it need not be sent any more.
        ours = {"linger.ms": 0, "message.timeout.ms": int(timeout * 1000)}
        self._producer = Producer({**properties, **ours}, logger=CLIENT_LOG)
        self._topic = topic
        self._owner = owner
        self._sent: dict[int, float] = {}

    def send_if_due(self, partition: int, now: float, interval: float) -> None:
        """Sends one to the partition if its last is `interval` seconds ago; waits for nothing."""
        self._producer.poll(0)
        if now - self._sent.get(partition, float("-inf")) >= interval:
            self._sent[partition] = now
            value = json.dumps({"name": self._owner, "sent": now})
            self._producer.produce(self._topic, value=value, partition=partition)


def sent_by(owner: str, value: bytes | None) -> float | None:
    """When `owner` sent this heartbeat, by its own clock; None for whatever else lies on the topic."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("name") != owner:
        return None
    sent = found.get("sent")
    # Not NaN, which compares with nothing and so would never grow old.
    return sent if type(sent) is float and isfinite(sent) else None
