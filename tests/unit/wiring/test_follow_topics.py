"""The job `replicate` reads every existing topic, and restarts when a new one appears."""

from __future__ import annotations

import threading

from inorder.engines.slice_work import SliceWork
from inorder.journal.jobs import follow_topics
from inorder.journal.replication.job import ReplicateWork
from inorder.model.errors import UnreachableError
from tests.fakes.replica import MemoryReplica

WORK = ReplicateWork((), MemoryReplica)
SOON = 0.001


class Cluster:
    """Lists its topics, or does not answer; `asked` has the arguments of each call."""

    def __init__(self, *answers: tuple[str, ...] | None) -> None:
        self._answers = list(answers)

    def topics(self) -> tuple[str, ...]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise UnreachableError("The cluster is away.")
        return answer


def followed(cluster: Cluster, *, until: int, once: bool = False) -> list[tuple[str, ...]]:
    """The topics of each run of the engine, up to so many runs."""
    stop, runs = threading.Event(), list[tuple[str, ...]]()

    def run_engine(work: SliceWork, over: threading.Event) -> None:
        runs.append(work.topics)
        if len(runs) == until:
            stop.set()
        if not once:
            assert over.wait(30)

    follow_topics(WORK, cluster.topics, run_engine, stop, once=once, look=SOON)
    return runs


def test_a_topic_that_comes_later_is_read_with_the_others() -> None:
    assert followed(Cluster(("b",), ("b",), ("b", "a")), until=2) == [("b",), ("a", "b")]


def test_the_first_topic_is_waited_for() -> None:
    assert followed(Cluster((), (), ("a",)), until=1) == [("a",)]


def test_a_cluster_that_does_not_answer_changes_nothing() -> None:
    assert followed(Cluster(("a",), None, ("a",), ("a", "b")), until=2) == [("a",), ("a", "b")]


def test_a_topic_that_is_gone_is_left_to_the_engine() -> None:
    assert followed(Cluster(("a", "b"), ("b",), ("b", "c")), until=2) == [("a", "b"), ("a", "b", "c")]


def test_once_reads_what_is_there_and_ends() -> None:
    assert followed(Cluster(("a",)), until=9, once=True) == [("a",)]
    assert followed(Cluster(()), until=9, once=True) == []
