"""A newcomer's first command carries events all the way and says what became of each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from tests.acceptance.cli.test_up import ask
from tests.conftest import Eventually

pytestmark = pytest.mark.spark


@pytest.mark.full
@pytest.mark.timeout(420)
def test_the_demo_carries_every_committed_update_and_prints_its_summary_last() -> None:
    command = [sys.executable, "-m", "inorder.cli", "demo", "--events", "1500", "--seed", "5", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert list(summary) == [
        "committed",
        "published",
        "applied",
        "rejected",
        "lost",
        "duplicated",
        "out_of_order",
        "seconds",
    ]
    assert 0 < summary["committed"] == summary["published"] == summary["applied"] + summary["rejected"] < 1500
    assert (summary["lost"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    assert {"write", "relay", "pipeline", "total"} <= set(summary["seconds"])
    assert "Every guarantee held." in ended.stderr


@pytest.mark.full
@pytest.mark.timeout(420)
def test_the_demo_that_is_kept_serves_its_pages_until_a_signal(eventually: Eventually) -> None:
    command = [sys.executable, "-m", "inorder.cli", "demo", "--events", "300", "--seed", "5", "--keep", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stderr is not None
            summary = json.loads(running.stdout.readline())
            said = iter(running.stderr.readline, "")
            found = next(
                filter(None, (re.search(r"The pages are at http://127\.0\.0\.1:(\d+)/;", line) for line in said))
            )
            port = int(found[1])

            def shows_the_result() -> bool:
                part = json.loads(ask(port, "/api/v1/pipeline")[1])
                return (part.get("rejected"), part.get("behind")) == (summary["rejected"], 0)

            eventually(shows_the_result)
            status, page = ask(port, "/")
            assert (status, "could not be applied" in page) == (200, True)
            running.send_signal(signal.SIGTERM)
            messages = running.communicate(timeout=120)[1]
        finally:
            running.kill()
    assert running.returncode == 0, messages
