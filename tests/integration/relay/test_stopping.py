"""`inorder relay run` as an operator stops it: in peace, and at once."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import inorder
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands, heard
from tests.integration.relay.conftest import Bench
from tests.integration.relay.writing import Writers


@pytest.mark.full
def test_one_signal_under_load_finishes_the_batch_in_hand_and_prints_what_is_left(
    bench: Bench, unique: str, eventually: Eventually, tmp_path: Path
) -> None:
    commands = Commands(bench, tmp_path, leadership="database", shards=2)
    with Writers(bench, unique) as writers:
        with commands.running("relay", "run") as process:
            eventually(lambda: len(writers.committed) - bench.count() > 100)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=120)[1]
        assert process.returncode == 0, said
        assert "Stopping the relay (at most 10 s; a second signal ends it at once)." in said
        last = re.search(r"Stopped\. (\d+) records were published by this instance; (\d+) rows wait", said)
        assert last is not None, said
        assert int(last[1]) > 100
        writers.stop()
    assert bench.count() == len(writers.committed) - int(last[1]), "what was published is purged"
    with inorder.Relay(bench.settings(leadership="database", shards=2)):
        eventually(lambda: bench.count() == 0)
    verdict = writers.verdict()
    assert verdict.holds, verdict


@pytest.mark.full
def test_a_second_signal_ends_at_once_and_the_next_instance_loses_and_doubles_nothing(
    bench: Bench, unique: str, eventually: Eventually, tmp_path: Path
) -> None:
    commands = Commands(bench, tmp_path, leadership="database", stop_seconds=300)
    with Writers(bench, unique) as writers:
        with commands.running("relay", "run") as process, bench.connect() as connection:
            eventually(lambda: len(writers.committed) - bench.count() > 100)
            # Nobody gets at the table, so that what is published cannot be purged and stopping must wait.
            connection.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
            process.send_signal(signal.SIGTERM)
            heard(process, "Stopping the relay (at most 300 s; a second signal ends it at once).")
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=120)[1]
            assert process.returncode == 1
            assert "error: the relay was ended by a second signal." in said
            assert "rows were in flight; they stay in the outbox until they are known to be sent." in said
        with inorder.Relay(bench.settings(leadership="database")) as next_one:
            eventually(lambda: next_one.published > 50)
            writers.stop()
            eventually(lambda: bench.count() == 0)
    verdict = writers.verdict()
    assert verdict.holds, verdict
