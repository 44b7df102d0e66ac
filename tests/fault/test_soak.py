"""All faults together, for a given time: `make soak` (SOAK_MINUTES, 30 by default; SOAK_SEED)."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.fault.conftest import Ordeal

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
SEED = int(os.environ.get("SOAK_SEED", str(random.randrange(1_000_000))))


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 600)
@pytest.mark.parametrize("ordeal", [SEED], indirect=True)
def test_every_guarantee_holds_through_a_long_mix_of_faults(ordeal: Ordeal) -> None:
    chance, path = random.Random(SEED), ordeal.path
    ends = time.monotonic() + MINUTES * 60
    with ordeal.load():
        while time.monotonic() < ends:
            fault = chance.choice(["relay", "relay", "pipeline", "broker"])
            ordeal.wait_for_progress()
            ordeal.history.append(f"{fault} killed at {path.position()} of {len(ordeal.ledger.entries)}")
            if fault == "broker":
                path.kill_broker()
                path.start_broker()
            else:
                service = path.relay if fault == "relay" else path.pipeline
                service.kill()
                service.start()
    summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
