"""A newcomer's first command carries events all the way and says what became of each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
