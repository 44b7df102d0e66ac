"""Instances share the shards of a table, whatever their leases are made of."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.conftest import Eventually
from tests.contract.lease.conftest import ADDRESSES, ROOT
from tests.contract.lease.making import Kind
from tests.contract.lease.sharing import ALL, Instance, make_leases
from tests.selection import few

SHARDS = 4


@dataclass
class Group:
    """The instances of one relay group; watches that no two lead the same shard."""

    kind: Kind
    address: str
    name: str
    instances: list[Instance] = field(default_factory=list)
    doubled: list[frozenset[int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def join(self) -> Instance:
        owner = f"instance {len(self.instances)}"
        leases = make_leases(self.kind, self.address, self.name, owner, SHARDS)
        self.instances.append(Instance(leases, self._watch))
        return self.instances[-1]

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[str]]:
        """Another process, which holds all shards when the block begins."""
        module = "tests.contract.lease.sharing"
        command = [sys.executable, "-m", module, self.kind, self.address, self.name, str(SHARDS)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == ALL
            yield process
            process.kill()

    def is_settled(self) -> bool:
        """Each shard has one leader, and none leads two more than another."""
        present = [one.leads for one in self.instances]
        leading = sorted(shard for leads in present for shard in leads)
        counts = [len(leads) for leads in present]
        return leading == list(range(SHARDS)) and max(counts) - min(counts) <= 1

    def _watch(self, changed: Instance) -> None:
        with self.lock:
            for other in self.instances:
                if other is not changed and other.leads & changed.leads:
                    self.doubled.append(other.leads & changed.leads)


@pytest.fixture(params=few(ADDRESSES, "redis"))
def group(request: pytest.FixtureRequest, unique: str) -> Iterator[Group]:
    """Of every kind that can share."""
    found = Group(request.param, request.getfixturevalue(ADDRESSES[request.param]), unique)
    yield found
    for instance in found.instances:
        instance.release()


def test_a_newcomer_takes_its_fair_part_and_the_rest_lead_on(group: Group, eventually: Eventually) -> None:
    stay = [group.join()]
    eventually(group.is_settled)
    for _ in range(2):
        newcomer = group.join()
        eventually(group.is_settled)
        assert sorted(shard for one in stay for shard in one.lost) == sorted(newcomer.leads)
        stay.append(newcomer)
        for one in stay:
            one.lost.clear()
    assert group.doubled == [], "none began before the other had stopped"


@pytest.mark.full
def test_the_shards_of_one_that_leaves_go_to_the_rest(group: Group, eventually: Eventually) -> None:
    for _ in range(3):
        group.join()
        eventually(group.is_settled)
    while len(group.instances) > 1:
        gone = group.instances.pop()
        kept = {one: one.leads for one in group.instances}
        for one in kept:
            one.lost.clear()
        gone.release()
        eventually(group.is_settled)
        assert all(one.lost == [] and leads <= one.leads for one, leads in kept.items()), "what stays is not disturbed"
    assert group.doubled == []


@pytest.mark.full
def test_the_shards_of_a_killed_process_go_to_the_rest(group: Group, eventually: Eventually) -> None:
    with group.process() as process:
        first = group.join()
        eventually(lambda: len(first.leads) == SHARDS // 2)
        second = group.join()
        eventually(lambda: second.leads)
        assert len(first.leads | second.leads) < SHARDS
        first.lost.clear()
        process.kill()
        eventually(group.is_settled)
    assert first.lost == second.lost == [], "what they had they kept"
