"""Leadership `kafka`: takes part in the election of `leadership/election.py`, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.heartbeat import PARTITION, Heartbeat, sent_by
from inorder.kafka.topics import ensure_topic
from inorder.leadership.election import (
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
from inorder.model.errors import ConfigurationError, InorderError

log = logging.getLogger("inorder.leadership")

DEFAULTS: Mapping[str, object] = {
    # A killed leader is missed after it. The least that brokers allow (group.min.session.timeout.ms), unless they are
    # told otherwise.
    "session.timeout.ms": 6_000,
    # How soon those who stay hear that somebody left.
    "heartbeat.interval.ms": 300,
}
"""What users may change."""

OURS: Mapping[str, object] = {
    # The session of the newer protocol is a setting of the broker, 45 s by default.
    "group.protocol": "classic",
    # Sticky, so that a newcomer does not take the partition from the leader.
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "fetch.wait.max.ms": 100,
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
class Limits:
    """How long a member of the election waits, in seconds, and for what."""

    poll: float = 0.1
    """For a record, before it looks at its duties again."""
    beat: float = 0.5
    """Between heartbeats of the owner."""
    back_off: float = 1.0
    """Before it joins again, after a failure."""
    make_topic: float = 3.0
    """For the broker to make the leader topic."""
    leave: float = 6.0
    """For leaving the group; the client itself gives up on a broker that is away after 5 s."""


class KafkaLease:
    """A `Lease` that the owner of partition 0 of the group's leader topic holds."""

    def __init__(
        self,
        properties: Mapping[str, object],
        *,
        group: str,
        owner: str,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        receive_deadline(properties)  # refuses a wrong session here, where the caller sees it
        self._new_member = partial(_Member, dict(properties), leader_topic(group), owner, limits or Limits(), clock)
        self._member: _Member | None = None

    @property
    def state(self) -> State:
        """Where this instance stands at the moment."""
        return self._member.now().state if self._member else State.STANDBY

    def acquire(self) -> bool:
        """Whether this instance leads now. The first call joins the election; what hinders it is raised once."""
        if self._member is None or self._member.has_ended():
            self._member = self._new_member()
            self._member.join()
        if self._member.now().leads:
            return True
        trouble = self._member.take_trouble()
        if trouble is not None:
            raise trouble
        return False

    def release(self) -> None:
        """Leaves the group, so that the partition goes to another at once. May be called twice."""
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    def arbitrates(self) -> bool:
        """Whoever waits is next when the owner of the partition leaves or falls silent."""
        return True


class _Member:
    """One membership, from joining to leaving; what it hears ends with it."""

    def __init__(
        self,
        properties: dict[str, object],
        topic: str,
        owner: str,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._properties = properties
        self._topic = topic
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._election = Election(receive_deadline(properties))
        self._trouble: InorderError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="inorder-leadership", daemon=True)

    def join(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(self._limits.leave)

    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def now(self) -> Election:
        """How the election stands. Whoever asks looks at the clock himself: our thread may be the one that stalls."""
        return self._note(Tick(self._clock()))

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
                self._note(Lost(self._clock()))
            self._stop.wait(self._limits.back_off)

    def _be_in_the_group(self) -> None:
        ensure_topic(self._properties, self._topic, 1, TOPIC_CONFIG, seconds=self._limits.make_topic)
        heartbeat = Heartbeat(self._properties, self._topic, self._owner, timeout=self._election.deadline)
        ours = {**OURS, "group.id": self._topic, "error_cb": self._on_error}
        consumer = Consumer({**DEFAULTS, **self._properties, **ours}, logger=CLIENT_LOG)
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stop.is_set():
                self._look(consumer)
                now = self._clock()
                if self._note(Tick(now)).is_owner:
                    heartbeat.send_if_due(now, self._limits.beat)
        finally:
            consumer.close()  # leaves the group at once

    def _look(self, consumer: Consumer) -> None:
        message = consumer.poll(self._limits.poll)
        if message is None:
            return
        if (error := message.error()) is not None:
            raise KafkaException(error)
        self._read(message)

    def _read(self, message: Message) -> None:
        sent = sent_by(self._owner, message.value()) if message.partition() == PARTITION else None
        if sent is not None:
            self._note(HeartbeatSeen(self._clock(), sent))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From the end: what was sent before proves nothing, and asking for committed offsets takes time.
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, OFFSET_END) for place in partitions])
        if _is_at_stake(partitions):
            self._note(Assigned(self._clock()))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if _is_at_stake(partitions):
            self._note(Revoked(self._clock()))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if _is_at_stake(partitions):
            self._note(Lost(self._clock()))

    def _on_error(self, error: KafkaError) -> None:
        doing = f"Taking part in the election on {self._topic!r}"
        if error.code() in _MISCONFIGURED:
            hint = 'Correct [kafka]; kafka."session.timeout.ms" must lie between the limits of broker and client.'
            self._trouble = ConfigurationError(f"{doing}: {error.str().strip()} ({error.name()}).", hint=hint)
        else:
            self._trouble = meaning(error, doing)

    def _note(self, event: Event) -> Election:
        """The election after an event; both threads come here."""
        with self._lock:
            before = self._election.state
            self._election = found = self._election.after(event)
        if found.state is not before:
            self._tell(before, found.state)
        return found

    def _tell(self, before: State, state: State) -> None:
        if state is State.LEADING:
            self._trouble = None
        level = logging.WARNING if state is State.FENCED else logging.INFO
        log.log(level, _EVENTS[state], extra={"before": before.value, "topic": self._topic})


def leader_topic(group: str) -> str:
    """The topic, and the consumer group on it, by which a relay group elects its leader."""
    return f"inorder.{group}.leader"


def receive_deadline(properties: Mapping[str, object]) -> float:
    """How long a heartbeat is trusted, in seconds: less than the session, however short that is set."""
    session = str({**DEFAULTS, **properties}["session.timeout.ms"])
    if not session.isdigit():
        raise ConfigurationError(f'kafka."session.timeout.ms" = {session!r} is not a number of milliseconds.')
    return min(RECEIVE_DEADLINE_SECONDS, int(session) / 1000 * 5 / 6)


def _is_at_stake(partitions: list[TopicPartition]) -> bool:
    return any(place.partition == PARTITION for place in partitions)
