"""A process that reads a backlog, compares it with the model, and prints time and memory.

`read` reads pointer and events of some journals, `subscribe` follows the whole topic.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inorder
from inorder.model.journal import Key

IDLE_SECONDS = 2.0
KILOBYTE = 1024

Expected = dict[str, Any]


def memory(name: str, process: int | str = "self") -> int:
    """`VmRSS`: current memory of a process; `VmHWM`: its peak; in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * KILOBYTE
    return 0


def read(journals: inorder.Journals, topic: str, expected: Expected) -> dict[str, float]:
    """Checks that every journal equals the model; returns how long the reads took."""
    took: list[float] = []
    for id, model in expected.items():
        journal, began = journals.journal(Key(id, topic)), time.monotonic()
        assert journal.pointer() == model["pointer"], id
        asked = time.monotonic()
        wanted = iter(model["events"])
        for record in journal.read():
            assert next(wanted, None) == [record.seq_nr, record.offset], (id, record.seq_nr)
        assert next(wanted, None) is None, id
        took += [asked - began, time.monotonic() - asked]
    return {"slowest": max(took), "mean": sum(took) / len(took)}


def subscribe(journals: inorder.Journals, topic: str, expected: Expected) -> dict[str, float]:
    """Checks that all remaining events arrive, no invalid one, each once and in order."""
    seen: dict[str, list[list[int]]] = {id: [] for id in expected}
    events, began, last = 0, time.monotonic(), 0.0
    for each in journals.subscribe(topic, idle_seconds=IDLE_SECONDS):
        events, last = events + 1, time.monotonic()
        if each.key.id in seen:
            seen[each.key.id].append([each.record.seq_nr, each.record.offset])
    for id, model in expected.items():
        places = {tuple(place) for place in seen[id]}
        assert len(places) == len(seen[id]), id
        assert places <= {tuple(place) for place in model["ever"]}, id
        assert places >= {tuple(place) for place in model["events"]}, id
        assert seen[id] == sorted(seen[id], key=lambda place: (place[1], place[0])), id
    return {"events": events, "seconds": last - began}


ORDERS: dict[str, Callable[[inorder.Journals, str, Expected], dict[str, float]]] = {
    "read": read,
    "subscribe": subscribe,
}


def main(order: str, settings: dict[str, dict[str, object]], topic: str, small: str, expectations: str) -> None:
    expected = json.loads(Path(expectations).read_text())
    with inorder.Journals(inorder.Settings.load(None, **settings)) as journals:
        # A topic of one record measures the memory of the code itself.
        list(journals.journal(Key("small", small)).read())
        gc.collect()
        before = memory("VmRSS")
        took = ORDERS[order](journals, topic, expected)
    sys.stdout.write(json.dumps({**took, "grown": memory("VmHWM") - before}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
