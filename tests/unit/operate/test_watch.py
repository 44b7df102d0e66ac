"""The parts are read on threads of their own, and the last hour is kept."""

from __future__ import annotations

import threading
import time

import pytest

from inorder.model.errors import UnreachableError
from inorder.operate.watch import PartReading, Watch
from tests.conftest import Eventually


def test_a_part_that_hangs_holds_up_no_other_and_an_error_is_kept(eventually: Eventually) -> None:
    released = threading.Event()

    def hangs() -> dict[str, object]:
        released.wait(60)
        return {}

    def fails() -> dict[str, object]:
        raise UnreachableError("No broker answers.")

    with Watch({"journal": hangs, "relay": lambda: {"waiting": 3}, "kafka": fails}, seconds=60) as watch:
        eventually(lambda: watch.part("relay").part == {"waiting": 3} and watch.part("kafka").part is not None)
        assert watch.part("journal").trouble == "It was not read yet."
        assert watch.part("kafka").trouble == "No broker answers."
        assert [value for _, value in watch.samples("relay", "waiting")] == [3.0]
        released.set()


def test_it_reads_again_when_it_is_woken(eventually: Eventually) -> None:
    seen: list[int] = []

    def read() -> dict[str, object]:
        seen.append(1)
        return {"waiting": len(seen)}

    with Watch({"relay": read}, seconds=3600) as watch:
        eventually(lambda: len(seen) == 1 and watch.part("relay").part is not None)
        watch.wake()
        eventually(lambda: watch.part("relay").part == {"waiting": 2})


def test_an_hour_is_kept_however_often_it_is_read() -> None:
    now = 1_000_000.0
    watch = Watch({}, seconds=1, clock=lambda: now)
    for number in range(5000):
        now += 1.0
        watch._note("relay", {"waiting": number})
    samples = watch.samples("relay", "waiting")
    assert len(samples) <= 720
    assert samples[-1] == (now, 4999.0)
    assert 3500 < samples[-1][0] - samples[0][0] <= 3700


def test_a_reading_without_trouble() -> None:
    assert PartReading({"waiting": 1}).trouble == ""


def test_a_reading_that_is_too_old_is_trouble() -> None:
    """Its reader hangs: what it read last says nothing about now."""
    fresh, old = PartReading({"waiting": 1}, 30.0), PartReading({"waiting": 1}, 31.0)
    assert (fresh.trouble, fresh.current) == ("", {"waiting": 1})
    assert old.trouble == "It has not answered for 31 s."
    assert old.current is not None
    assert old.current["error"] == old.trouble
    assert PartReading({"error": "No broker answers."}, 31.0).trouble == "No broker answers."


@pytest.mark.parametrize(("seconds", "bound"), [(5, 30), (60, 180)])
def test_how_old_is_too_old_depends_on_how_often_it_is_read(seconds: float, bound: float) -> None:
    watch = Watch({"relay": dict}, seconds=seconds)
    watch._readers["relay"]._last = (time.monotonic() - bound + 2, {"waiting": 1})
    assert watch.part("relay").trouble == ""
    watch._readers["relay"]._last = (time.monotonic() - bound - 2, {"waiting": 1})
    assert "has not answered" in watch.part("relay").trouble
