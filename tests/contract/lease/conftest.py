"""Leases of every kind on the session's servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inorder.relay.leadership.lease import Lease
from tests.contract.lease.holder import HELD
from tests.contract.lease.making import Kind, make_lease
from tests.selection import few

ROOT = Path(__file__).parents[3]
ADDRESSES = {
    "postgres": "postgres_url",
    "mariadb": "mariadb_url",
    "sqlite": "sqlite_url",
    "redis": "redis_url",
    "kafka": "kafka_bootstrap",
}


@dataclass
class Leases:
    """Instances that compete for one lease; all are released at the end of the test."""

    kind: Kind
    address: str
    group: str
    opened: list[Lease] = field(default_factory=list)

    def open(self, owner: str, *, seconds: float = 60.0, group: str | None = None) -> Lease:
        self.opened.append(make_lease(self.kind, self.address, group or self.group, owner, seconds))
        return self.opened[-1]

    @contextmanager
    def holder_process(self) -> Iterator[subprocess.Popen[str]]:
        """Another process, which holds the lease when the block begins."""
        command = [sys.executable, "-m", "tests.contract.lease.holder", self.kind, self.address, self.group, "3"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == HELD
            yield process
            process.kill()


def _leases(request: pytest.FixtureRequest, unique: str) -> Iterator[Leases]:
    found = Leases(request.param, request.getfixturevalue(ADDRESSES[request.param]), unique)
    yield found
    for lease in found.opened:
        lease.release()


@pytest.fixture(params=few(ADDRESSES, "postgres", "kafka"))
def leases(request: pytest.FixtureRequest, unique: str) -> Iterator[Leases]:
    """Of every kind."""
    yield from _leases(request, unique)


@pytest.fixture(params=few((kind for kind in ADDRESSES if kind != "kafka"), "redis"))
def timed_leases(request: pytest.FixtureRequest, unique: str) -> Iterator[Leases]:
    """Of the kinds that a holder loses by not asking for a while."""
    yield from _leases(request, unique)
