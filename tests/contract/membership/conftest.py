"""Memberships of every kind on the session's servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inorder.database.database import open_database
from inorder.relay.leadership.share import Membership
from inorder.relay.stores.redis_lease import RedisMembership
from inorder.relay.stores.sql_lease import SqlMembership
from tests.fakes.outbox import MemoryGroup, MemoryMembership
from tests.selection import few

Make = Callable[[str, str, float], Membership]


@dataclass
class Members:
    """Instances of one group; all leave at the end of the test."""

    make: Make
    group: str
    joined: list[Membership] = field(default_factory=list)

    def open(self, instance: str, *, seconds: float = 60.0, group: str | None = None) -> Membership:
        self.joined.append(self.make(group or self.group, instance, seconds))
        return self.joined[-1]


def in_memory() -> Make:
    groups: dict[str, MemoryGroup] = {}
    return lambda group, instance, seconds: MemoryMembership(
        groups.setdefault(group, MemoryGroup()), instance=instance, seconds=seconds
    )


def in_redis(url: str) -> Make:
    return lambda group, instance, seconds: RedisMembership(url, group=group, instance=instance, seconds=seconds)


def in_database(url: str) -> Make:
    return lambda group, instance, seconds: SqlMembership(
        open_database(url, "test"), group=group, instance=instance, seconds=seconds
    )


@pytest.fixture(params=few(["memory", "postgres", "mariadb", "sqlite", "redis"], "memory", "postgres", "redis"))
def members(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Iterator[Members]:
    """Of every kind."""
    match request.param:
        case "memory":
            found = Members(in_memory(), unique)
        case "redis":
            found = Members(in_redis(request.getfixturevalue("redis_url")), unique)
        case "sqlite":
            found = Members(in_database(f"sqlite:///{tmp_path / 'members.db'}"), unique)
        case dialect:
            found = Members(in_database(request.getfixturevalue(f"{dialect}_url")), unique)
    yield found
    for member in found.joined:
        member.leave()
