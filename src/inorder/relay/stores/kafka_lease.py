"""Leadership `kafka`: a lease for each shard, all held through one membership of the consumer group that elects.

`GroupMember` takes part in the election of every shard (`leadership/election.py`), on its own thread. `Heartbeat` sends
the records by which the owner of a partition proves to itself that it is connected.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite

import orjson
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
    # A killed leader is replaced after it. The minimum that brokers allow by default (group.min.session.timeout.ms).
    "session.timeout.ms": 6_000,
    # How soon members learn that another joined or left.
    "heartbeat.interval.ms": 300,
}
"""What users may change."""

OURS: Mapping[str, object] = {
    # The session of the newer protocol is a setting of the broker, 45 s by default.
    "group.protocol": "classic",
    # Sticky, so that a new member takes its fair part and no more; cooperative, so that what stays is not interrupted.
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "fetch.wait.max.ms": 100,
    # New partitions of the topic are noticed after it.
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
    """For a record, before it checks its timers again."""
    beat: float = 0.5
    """Between heartbeats of the owner."""
    back_off: float = 1.0
    """Before it joins again, after a failure."""
    create_topic: float = 3.0
    """For the broker to create the leader topic."""
    hand_over: float = 1.5
    """For the loops of shards that move to another instance to stop. A third of the deadline at most: meanwhile no
    heartbeat is read for the shards that stay."""
    leave: float = 6.0
    """For leaving the group; the client itself gives up on an unreachable broker after 5 s."""


class KafkaLeases:
    """What one instance holds in a relay group: partition i of the leader topic is the lease of shard i.

    >>> leases = KafkaLeases({"bootstrap.servers": "127.0.0.1:9092"}, group="orders", owner="host/1", shards=4)
    >>> lease = leases.lease(3)  # its first `acquire` joins the group
    """

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        group: str,
        owner: str,
        shards: int = 1,
        times: ElectionTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        receive_deadline(properties)  # rejects a wrong session here, where the caller sees it
        topic = leader_topic(group)
        self._new_member = partial(GroupMember, dict(properties), topic, owner, shards, times or ElectionTimes(), clock)
        self._shards = shards
        self._lock = threading.Lock()
        self._member: GroupMember | None = None
        self._in_use: set[int] = set()

    def lease(self, shard: int = 0) -> KafkaLease:
        if not 0 <= shard < self._shards:
            raise ConfigurationError(f"There is no shard {shard}: relay.shards = {self._shards}.")
        return KafkaLease(self, shard)

    def state(self, shard: int) -> State:
        """The state of this instance in the election of one shard."""
        member = self._member
        return member.now(shard).state if member else State.STANDBY

    def holds(self, shard: int) -> bool:
        """Whether this instance leads the shard, or is waited for while it gives it up."""
        member = self._member
        return member is not None and member.holds(shard)

    def acquire(self, shard: int) -> bool:
        """Whether this instance leads the shard now."""
        member = self._join(shard)
        if member.leads(shard):
            return True
        error = member.take_error()
        if error is not None:
            raise error
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

    def _join(self, shard: int) -> GroupMember:
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
        return self._leases.state(self._shard)

    def acquire(self) -> bool:
        """Whether this instance leads now. The first call joins the election; each of its errors is raised once."""
        return self._leases.acquire(self._shard)

    def holds(self) -> bool:
        """Only while it leads, or its shard waits to be handed over until its loop has stopped.

        Not after this instance has fenced itself because its own heartbeats do not come back, and not after the
        partition was lost: another instance may work on the shard already.
        """
        return self._leases.holds(self._shard)

    def release(self) -> None:
        """Gives the shard up. Its partition moves to another when all shards of this instance are given up."""
        self._leases.release(self._shard)

    def arbitrates(self) -> bool:
        """A waiting instance is next when the owner of the partition leaves or falls silent."""
        return True


def leader_topic(group: str) -> str:
    """The topic, and the consumer group on it, by which a relay group elects the leader of each shard."""
    return f"inorder.{group}.leader"


class GroupMember:
    """One membership, from joining to leaving; what it knows ends with it."""

    def __init__(
        self,
        properties: dict[str, object],
        topic: str,
        owner: str,
        shards: int,
        times: ElectionTimes,
        clock: Callable[[], float],
    ) -> None:
        self._properties = properties
        self._topic = topic
        self._owner = owner
        self._times = times
        self._clock = clock
        self._deadline = receive_deadline(properties)
        self._lock = threading.RLock()
        self._elections = [Election(self._deadline) for _ in range(shards)]
        self._hand_overs = [HandOver() for _ in range(shards)]
        self._handing_over: frozenset[int] = frozenset()
        self._error: InorderError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="inorder-leadership", daemon=True)

    def join(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Leaves the group, so that its partitions go to others at once."""
        self._stop.set()
        self._thread.join(self._times.leave)

    def has_ended(self) -> bool:
        """Whether the thread is gone, so that nothing is received any more."""
        return not self._thread.is_alive()

    def leads(self, shard: int) -> bool:
        """Whether we lead the shard; its loop gets this answer."""
        with self._lock:
            leads = self.now(shard).leads
            self._hand_overs[shard].record(leads)
        return leads

    def holds(self, shard: int) -> bool:
        """Whether the shard's loop may finish what it has in hand."""
        with self._lock:
            return self.now(shard).leads or shard in self._handing_over

    def stopped(self, shard: int) -> None:
        """The shard's loop has ended: its hand-over need not wait for it."""
        self._hand_overs[shard].stopped()

    def now(self, shard: int) -> Election:
        """The state of the election by the clock of the caller: our own thread may be the one that stalls."""
        return self._apply(shard, Tick(self._clock()))

    def take_error(self) -> InorderError | None:
        """What the thread failed with since the last call; returned once."""
        error, self._error = self._error, None
        return error

    def _take_part(self) -> None:
        """The thread: a member of the group until `leave`, joining again after every failure."""
        while not self._stop.is_set():
            try:
                self._stay_in_group()
            except KafkaException as exception:
                self._on_error(error_of(exception))
            except InorderError as error:
                self._error = error
            finally:
                self._apply_all(range(len(self._elections)), Lost(self._clock()))
            self._stop.wait(self._times.back_off)

    def _stay_in_group(self) -> None:
        self._create_topic()
        heartbeat = Heartbeat(self._properties, self._topic, self._owner, timeout=self._deadline)
        # The broker shows the client id of each member, so that `inorder relay status` can name us.
        ours = {**OURS, "group.id": self._topic, "client.id": self._owner, "error_cb": self._on_error}
        consumer = Consumer({**DEFAULTS, **self._properties, **ours}, logger=CLIENT_LOG)
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stop.is_set():
                self._poll(consumer)
                self._beat(heartbeat)
        finally:
            consumer.close()  # leaves the group at once

    def _create_topic(self) -> None:
        shards, seconds = len(self._elections), self._times.create_topic
        ensure_topic(self._properties, self._topic, shards, TOPIC_CONFIG, seconds=seconds)
        if shards > 1:
            ensure_partitions(self._properties, self._topic, shards, seconds=seconds)

    def _beat(self, heartbeat: Heartbeat) -> None:
        for shard in range(len(self._elections)):
            now = self._clock()
            if self._apply(shard, Tick(now)).is_owner:
                heartbeat.send_if_due(shard, now, self._times.beat)

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(self._times.poll)
        if message is None:
            return
        if (error := message.error()) is not None:
            raise KafkaException(error)
        self._read(message)

    def _read(self, message: Message) -> None:
        sent, partition = sent_by(self._owner, message.value()), message.partition()
        if sent is not None and partition is not None:
            self._apply_all([partition], HeartbeatSeen(self._clock(), sent))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From the end: what was sent before proves nothing, and reading committed offsets takes time.
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, OFFSET_END) for place in partitions])
        self._apply_all(_partitions_of(partitions), Assigned(self._clock()))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others get these partitions when this returns, so the loops of their shards should have stopped by then."""
        ours = self._ours(_partitions_of(partitions))
        with self._lock:
            self._handing_over = frozenset(shard for shard in ours if self.now(shard).leads)
            self._apply_all(ours, Revoked(self._clock()))
        try:
            until = self._clock() + min(self._times.hand_over, self._deadline / 3)
            for shard in ours:
                if not self._hand_overs[shard].wait(until - self._clock()):
                    log.warning("leadership.hand_over_late", extra={"topic": self._topic, "shard": shard})
        finally:
            self._handing_over = frozenset()

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._apply_all(_partitions_of(partitions), Lost(self._clock()))

    def _on_error(self, error: KafkaError) -> None:
        doing = f"Taking part in the election on {self._topic!r}"
        if error.code() in _MISCONFIGURED:
            hint = 'Correct [kafka]; kafka."session.timeout.ms" must lie between the limits of broker and client.'
            self._error = ConfigurationError(f"{doing}: {error.str().strip()} ({error.name()}).", hint=hint)
        else:
            self._error = meaning(error, doing)

    def _ours(self, partitions: Iterable[int]) -> list[int]:
        # A topic created for more shards than there are now has partitions that mean nothing.
        return [number for number in partitions if number < len(self._elections)]

    def _apply_all(self, partitions: Iterable[int], event: Event) -> None:
        for shard in self._ours(partitions):
            self._apply(shard, event)

    def _apply(self, shard: int, event: Event) -> Election:
        """Applies an event to a shard's election; thread-safe."""
        with self._lock:
            before = self._elections[shard].state
            self._elections[shard] = found = self._elections[shard].after(event)
        if found.state is not before:
            self._report(shard, before, found.state)
        return found

    def _report(self, shard: int, before: State, state: State) -> None:
        if state is State.LEADING:
            self._error = None
        level = logging.WARNING if state is State.FENCED else logging.INFO
        where = {"topic": self._topic, "shard": shard, "owner": self._owner}
        log.log(level, _EVENTS[state], extra={"before": before.value, **where})


def receive_deadline(properties: Mapping[str, object]) -> float:
    """How long a heartbeat is trusted, in seconds: less than the session, however short that is set."""
    session = str({**DEFAULTS, **properties}["session.timeout.ms"])
    if not session.isdigit():
        raise ConfigurationError(f'kafka."session.timeout.ms" = {session!r} is not a number of milliseconds.')
    return min(RECEIVE_DEADLINE_SECONDS, int(session) / 1000 * 5 / 6)


def _partitions_of(partitions: list[TopicPartition]) -> list[int]:
    return [place.partition for place in partitions]


class Heartbeat:
    """Sends heartbeats of one owner: its name, and when they were sent by its own clock."""

    def __init__(self, properties: Mapping[str, object], topic: str, owner: str, *, timeout: float) -> None:
        # A late heartbeat proves nothing, so it need not be sent.
        ours = {"linger.ms": 0, "message.timeout.ms": int(timeout * 1000)}
        self._producer = Producer({**properties, **ours}, logger=CLIENT_LOG)
        self._topic = topic
        self._owner = owner
        self._sent: dict[int, float] = {}

    def send_if_due(self, partition: int, now: float, interval: float) -> None:
        """Sends one to the partition if the last was `interval` seconds ago; does not block."""
        self._producer.poll(0)
        if now - self._sent.get(partition, float("-inf")) >= interval:
            self._sent[partition] = now
            value = json.dumps({"name": self._owner, "sent": now})
            self._producer.produce(self._topic, value=value, partition=partition)


def sent_by(owner: str, value: bytes | None) -> float | None:
    """When `owner` sent this heartbeat, by its own clock; None for any other record of the topic."""
    try:
        found = orjson.loads(value or b"")  # which refuses what is nested too deeply
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("name") != owner:
        return None
    sent = found.get("sent")
    # Not NaN, which compares with nothing and so would never expire.
    return sent if type(sent) is float and isfinite(sent) else None
