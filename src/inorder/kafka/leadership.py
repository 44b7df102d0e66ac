"""Leadership `kafka`: a lease for each shard, all held through one membership of the group's election."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from inorder.kafka.group_member import GroupMember, Limits, receive_deadline
from inorder.leadership.election import State
from inorder.model.errors import ConfigurationError


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
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        receive_deadline(properties)  # refuses a wrong session here, where the caller sees it
        topic = leader_topic(group)
        self._new_member = partial(GroupMember, dict(properties), topic, owner, shards, limits or Limits(), clock)
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
