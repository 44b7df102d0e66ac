"""What a call knows of its messages at every moment, and what its error says."""

from __future__ import annotations

import pickle
import threading

import pytest

from inorder.model.errors import (
    PermanentError,
    PublishError,
    PublishRefusedError,
    PublishUnfinishedError,
    RejectedError,
    TransientError,
)
from inorder.model.message import Limits, Message, encode
from inorder.outbox import request as call_module
from inorder.outbox.request import PublishRequest


def call_of(count: int) -> PublishRequest:
    messages = [Message("t", key="k", value=number) for number in range(count)]
    return PublishRequest(messages, [encode(message, Limits()) for message in messages])


def failure_of(call: PublishRequest) -> PublishError:
    with pytest.raises(PublishError) as caught:
        call.wait(range(len(call.messages)), 0)
    return caught.value


def values(messages: tuple[Message, ...]) -> list[object]:
    return [message.value for message in messages]


def test_a_call_returns_when_all_have_arrived() -> None:
    call = call_of(3)
    assert all(call.take(position) for position in range(3))
    thread = threading.Thread(target=call.arrived, args=(0, 1, 2))
    thread.start()
    call.wait(range(3), 30)
    thread.join()
    assert not call.is_over


def test_a_call_waits_only_for_what_it_is_told_to() -> None:
    call = call_of(3)
    call.arrived(1)
    call.wait([1], 30)


def test_a_refusal_names_the_message_and_splits_the_call_in_sent_and_unsent() -> None:
    call = call_of(4)
    assert all(call.take(position) for position in range(3))
    call.arrived(0)
    call.fail(RejectedError("too large.", hint="smaller"), refused=1)
    call.put_back(2)
    assert not call.take(3)
    error = failure_of(call)
    assert isinstance(error, PublishRefusedError)
    assert isinstance(error, PermanentError)
    assert (values(error.sent), values(error.unsent), error.refused.value) == ([0], [1, 2, 3], 1)
    assert error.message == "too large. Of 4 messages 1 were sent, 3 were not."
    assert error.hint == "smaller"
    assert isinstance(error.__cause__, RejectedError)


def test_when_the_time_is_over_the_error_says_what_it_waited_for() -> None:
    call = call_of(2)
    call.late("The broker is away.")
    error = failure_of(call)
    assert isinstance(error, PublishUnfinishedError)
    assert isinstance(error, TransientError)
    assert error.message.startswith("Timed out: not acknowledged within 0 s. The broker is away.")
    assert values(error.unsent) == [0, 1]
    assert error.in_doubt == ()


def test_the_end_of_the_time_lets_what_is_in_hand_be_settled_first() -> None:
    call = call_of(2)
    assert call.take(0)
    assert call.take(1)

    def settle() -> None:
        call.arrived(0)
        call.fail(TransientError("given up"), in_doubt=1)

    thread = threading.Timer(0.1, settle)
    thread.start()
    error = failure_of(call)
    thread.join()
    assert (values(error.sent), values(error.unsent), values(error.in_doubt)) == ([0], [1], [1])


def test_what_arrives_at_the_last_moment_makes_the_call_good() -> None:
    call = call_of(1)
    assert call.take(0)
    thread = threading.Timer(0.1, call.arrived, [0])
    thread.start()
    call.wait([0], 0)
    thread.join()


def test_what_nobody_settles_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "SETTLING_SECONDS", 0.05)
    call = call_of(1)
    assert call.take(0)
    assert values(failure_of(call).in_doubt) == [0]


def test_of_several_failures_the_first_is_told_and_a_refusal_before_all_others() -> None:
    call = call_of(2)
    call.fail(TransientError("first"))
    call.fail(TransientError("second"))
    assert failure_of(call).message.startswith("first")
    call.fail(RejectedError("refused"), refused=1)
    assert isinstance(failure_of(call), PublishRefusedError)


def test_what_was_in_hand_when_the_call_ended_is_not_waited_for_once_it_is_offered_again() -> None:
    call = call_of(1)
    assert call.take(0)
    call.fail(TransientError("away"))
    assert not call.take(0)
    assert values(failure_of(call).in_doubt) == []


def test_the_error_survives_pickling() -> None:
    call = call_of(1)
    call.fail(RejectedError("too large."), refused=0)
    copy = pickle.loads(pickle.dumps(failure_of(call)))  # noqa: S301 - our own bytes
    assert isinstance(copy, PublishRefusedError)
    assert (copy.refused.value, values(copy.unsent), copy.code) == (0, [0], "PUBLISH-001")
