"""The first signal asks a service to stop; a service that does not stop in time is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from inorder.cli.stopping import in_background, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event(number: signal.Signals) -> None:
    with stop_on_signals("the test", 10) as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)


def test_other_signals_do_not_stop_it() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_on_signals("the test", 10) as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_and_threads_are_as_before_afterwards() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match="boom"), stop_on_signals("the test", 10):
        raise RuntimeError("boom")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert threading.active_count() == threads


STUBBORN = """
import os, signal, sys, threading
from inorder.cli.stopping import stop_on_signals
with stop_on_signals("the stubborn one", 0.2):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
"""


def test_a_service_that_does_not_stop_in_its_budget_is_ended_with_a_sentence() -> None:
    ran = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 1
    assert "error: the stubborn one did not stop within 0.2 s and was ended." in ran.stderr


def test_work_in_the_background_gives_its_result_and_its_error() -> None:
    assert in_background(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0)


BUSY = """
import os, signal, threading
from inorder.cli.stopping import stop_on_signals
with stop_on_signals("the busy one", 60, left=lambda: "7 rows are left."):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
"""


def test_a_second_signal_ends_it_at_once_and_says_what_is_left() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stderr is not None
        assert "a second signal ends it at once" in ran.stderr.readline()
        ran.send_signal(signal.SIGTERM)
        assert "was ended by a second signal. 7 rows are left." in ran.stderr.read()
    assert ran.returncode == 1


AT_ONCE = """
import os, signal
from inorder.cli.stopping import stop_on_signals
with stop_on_signals("the patient one", 60) as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    os.killpg(os.getpgrp(), signal.SIGTERM)
    assert stop.wait(30)
"""


def test_a_signal_to_the_process_and_to_its_group_is_one() -> None:
    command = [sys.executable, "-c", AT_ONCE]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, start_new_session=True)
    assert ran.returncode == 0, ran.stderr
