"""A commit whose answer is lost runs again until what it wrote shows its fate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest

from inorder.engines.slice_work import LOCK_ATTEMPTS, retry_conflicts, settle_commit
from inorder.model.errors import FencedError, LockConflictError, TransientError, UnknownOutcomeError

Answer = Literal["ok", "lost, committed", "lost, rolled back", "fenced", "lost while writing"]


@dataclass
class Store:
    """A pointer that moves from 0 to 1 once; each transaction ends with the next answer."""

    answers: list[Answer]
    pointer: int = 0
    seen: list[str | None] = field(default_factory=list)

    @contextmanager
    def begin(self) -> Iterator[Answer]:
        answer = self.answers.pop(0)
        yield answer
        if answer in ("ok", "lost, committed"):
            self.pointer = 1
        if answer.startswith("lost"):
            raise UnknownOutcomeError("The connection was lost.")
        if answer == "fenced":
            raise FencedError("The pointer was moved.")

    def write(self, answer: Answer, lost: str | None) -> str:
        self.seen.append(lost)
        if answer == "lost while writing":
            raise UnknownOutcomeError("Kafka did not answer.")
        return "nothing left to do" if self.pointer else f"applied by attempt {len(self.seen)}"

    def settle(self, *retry_on: type[TransientError]) -> str:
        def combine(lost: str, now: str) -> str:
            return lost if now == "nothing left to do" else now

        return settle_commit(self.begin, self.write, combine, what="it", hint="Read the pointer.", retry_on=retry_on)


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        (["ok"], "applied by attempt 1"),
        (["lost, committed", "ok"], "applied by attempt 1"),
        (["lost, rolled back", "ok"], "applied by attempt 2"),
        (["lost, committed", "lost, rolled back", "ok"], "applied by attempt 1"),
        (["lost, rolled back", "lost, committed", "ok"], "applied by attempt 2"),
        (["lost while writing", "ok"], "applied by attempt 2"),
    ],
)
def test_the_result_is_that_of_the_attempt_that_was_committed(answers: list[Answer], result: str) -> None:
    assert Store(answers).settle() == result


def test_an_attempt_receives_the_result_of_the_one_whose_answer_was_lost() -> None:
    store = Store(["lost while writing", "lost, committed", "ok"])
    store.settle()
    assert store.seen == [None, None, "applied by attempt 2"]


def test_a_fence_is_retried_only_where_the_caller_says_so() -> None:
    assert Store(["fenced", "ok"]).settle(FencedError) == "applied by attempt 2"
    with pytest.raises(FencedError):
        Store(["fenced", "ok"]).settle()


def test_after_three_attempts_the_outcome_is_unknown() -> None:
    with pytest.raises(UnknownOutcomeError, match="it is unknown after 3 attempts: The connection was lost") as caught:
        Store(["lost, rolled back"] * 3).settle()
    assert caught.value.hint == "Read the pointer."


@pytest.mark.parametrize("conflicts", range(LOCK_ATTEMPTS))
def test_a_deadlock_runs_the_transaction_again_after_short_pauses_that_differ(conflicts: int) -> None:
    left, pauses = [LockConflictError("deadlock detected")] * conflicts, list[float]()

    def run() -> str:
        if left:
            raise left.pop()
        return "committed"

    assert retry_conflicts(run, pauses.append) == "committed"
    assert len(set(pauses)) == len(pauses) == conflicts
    assert pauses == sorted(pauses)


def test_a_conflict_that_does_not_end_is_raised() -> None:
    pauses: list[float] = []

    def run() -> str:
        raise LockConflictError("lock timeout")

    with pytest.raises(LockConflictError, match="lock timeout"):
        retry_conflicts(run, pauses.append)
    assert len(pauses) == LOCK_ATTEMPTS - 1
