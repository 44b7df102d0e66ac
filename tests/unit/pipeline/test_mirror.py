"""Pointers in a consumer group: what is committed, and that a failure disturbs nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from inorder.engines.mirror import AGAIN_SECONDS, PointerMirror, mirrored
from inorder.model.errors import UnreachableError
from inorder.model.partitioning import Extent, Place
from tests.unit.pipeline.test_progress import EndingSource


def test_pointers_are_committed_or_ends_where_only_markers_are_left() -> None:
    held = {0: Extent(0, 10), 1: Extent(0, 10), 2: Extent(0, 9_000), 3: Extent(0, 5)}
    source = EndingSource({"a": held}, left={("a", 1)})
    pointers = {("a", 0): 9, ("a", 1): 7, ("a", 2): 4_000, ("a", 3): 5, ("gone", 0): 3}
    assert mirrored(source, ("a", "gone"), pointers) == {("a", 0): 10, ("a", 1): 7, ("a", 2): 4_000, ("a", 3): 5}


class Group:
    def __init__(self) -> None:
        self.now = 0.0
        self.pointers: dict[Place, int] = {("a", 0): 1, ("a", 1): 5}
        self.committed: list[dict[Place, int]] = []
        self.is_away = False

    def commit(self, offsets: Mapping[Place, int]) -> None:
        if self.is_away:
            raise UnreachableError("Kafka is away.")
        self.committed.append(dict(offsets))

    def mirror(self) -> PointerMirror:
        return PointerMirror(lambda: self.pointers, self.commit, clock=lambda: self.now)


def test_only_changes_are_committed_and_everything_from_time_to_time() -> None:
    group = Group()
    mirror = group.mirror()
    mirror.copy()
    mirror.copy()
    group.pointers = {("a", 0): 2, ("a", 1): 5}
    mirror.copy()
    group.now = AGAIN_SECONDS
    mirror.copy()
    assert group.committed == [{("a", 0): 1, ("a", 1): 5}, {("a", 0): 2}, {("a", 0): 2, ("a", 1): 5}]


def test_a_failure_is_logged_once_and_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    mirror, group.is_away = group.mirror(), True
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        mirror.copy()
        mirror.copy()
    assert [record.msg for record in caplog.records] == ["pipeline.mirror_failed"]
    group.is_away = False
    mirror.copy()
    assert group.committed == [{("a", 0): 1, ("a", 1): 5}]


def test_the_last_offsets_are_committed_at_the_end() -> None:
    group = Group()
    with group.mirror():
        group.pointers = {("a", 0): 7}
    assert group.committed[-1] == {("a", 0): 7}
