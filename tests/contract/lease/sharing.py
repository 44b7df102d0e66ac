"""Instances that share shards, made the same way in the tests and in the processes that they kill."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

from inorder.database.database import open_database
from inorder.model.errors import TransientError
from inorder.relay.leadership.lease import Lease
from inorder.relay.leadership.share import Share, SharedLease
from inorder.relay.stores.kafka_lease import KafkaLeases
from inorder.relay.stores.redis_lease import RedisLease, RedisMembership
from inorder.relay.stores.sql_lease import SqlLease, SqlMembership
from tests.contract.lease.making import Kind

ALL = "all"
PAUSE_SECONDS = 0.05
MORTAL_SECONDS = 3.0
"""How long one that is killed is missed; it must live through any pause of a busy machine, too."""


def make_leases(kind: Kind, address: str, group: str, owner: str, shards: int, *, seconds: float = 30.0) -> list[Lease]:
    """A lease for each shard, as one instance holds them; `seconds` is how long it may be silent, where it says so."""
    match kind:
        case "kafka":
            kafka = KafkaLeases({"bootstrap.servers": address}, group=group, owner=owner, shards=shards)
            return [kafka.lease(shard) for shard in range(shards)]
        case "postgres" | "mariadb" | "sqlite":
            membership = SqlMembership(open_database(address, "test"), group=group, instance=owner, seconds=seconds)
            databases = [open_database(address, "test") for _ in range(shards)]
            return _shared(
                Share(shards, membership),
                [SqlLease(each, name=f"{group}.{n}", owner=owner, seconds=seconds) for n, each in enumerate(databases)],
            )
        case "redis":
            return _shared(
                Share(shards, RedisMembership(address, group=group, instance=owner, seconds=seconds)),
                [RedisLease(address, name=f"{group}.{n}", owner=owner, seconds=seconds) for n in range(shards)],
            )


def _shared(share: Share, leases: Sequence[Lease]) -> list[Lease]:
    return [SharedLease(lease, share, shard) for shard, lease in enumerate(leases)]


class Instance:
    """Asks for all its shards in turn, as their loops would, until it is stopped; records the answers."""

    def __init__(self, leases: list[Lease], on_change: Callable[[Instance], None] = lambda _instance: None) -> None:
        self._leases = leases
        self._on_change = on_change
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.leads: frozenset[int] = frozenset()
        self.lost: list[int] = []
        """Shards that were taken from it, in turn."""
        self._thread.start()

    def release(self) -> None:
        """Ends in an orderly way; may be called twice."""
        self._stop.set()
        self._thread.join()
        for lease in self._leases:
            lease.release()
        self.leads = frozenset()

    def _ask(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            for shard, lease in enumerate(self._leases):
                self._note(shard, _leads(lease))

    def _note(self, shard: int, leads: bool) -> None:
        if leads is (shard in self.leads):
            return
        if leads:
            self.leads |= {shard}
        else:
            self.leads -= {shard}
            self.lost.append(shard)
        self._on_change(self)


def _leads(lease: Lease) -> bool:
    try:
        return lease.acquire()
    except TransientError:
        return False


def main(kind: str, address: str, group: str, shards: str) -> None:
    """Says once that it holds all shards; continues until it is killed or its standard input is closed."""

    def say(instance: Instance) -> None:
        if len(instance.leads) == int(shards):
            sys.stdout.write(f"{ALL}\n")
            sys.stdout.flush()

    known: Kind = kind  # type: ignore[assignment]  # from a test
    instance = Instance(make_leases(known, address, group, "process", int(shards), seconds=MORTAL_SECONDS), say)
    sys.stdin.read()
    instance.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
