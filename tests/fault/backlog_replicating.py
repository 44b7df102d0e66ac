"""A process that replicates a topic to its end as a resident task does, and prints time and memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing

from inorder.engines.in_process import SLICE_RECORDS
from inorder.engines.partition_reader import KafkaSource
from inorder.engines.slice_work import SliceOutcome, SliceWorker
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.stores.opening import JournalReplicas
from inorder.model.errors import TransientError
from tests.fault.backlog_reading import memory


def main(bootstrap: str, url: str, topic: str) -> None:
    source, began, read = KafkaSource({"bootstrap.servers": bootstrap}), time.monotonic(), 0
    before = memory("VmRSS")
    with closing(ReplicateWork((topic,), JournalReplicas(url)).open()) as worker:
        while True:
            try:
                for outcome in caught_up(source, worker, topic):
                    read += outcome.read - outcome.replayed
            except TransientError:
                continue  # as the engine does: restart from the pointers
            break
    took = {"records": read, "seconds": time.monotonic() - began, "grown": memory("VmHWM") - before}
    sys.stdout.write(json.dumps(took))


def caught_up(source: KafkaSource, worker: SliceWorker, topic: str) -> Iterator[SliceOutcome]:
    """Applies slice after slice, from the pointers to the end of the topic."""
    pointers = worker.pointers(topic)
    places = [(topic, number) for number in range(source.partitions(topic) or 0)]
    starts = {place: pointers[place[1]].next_offset if place[1] in pointers else None for place in places}
    left = set(places)
    with closing(source.open(starts, headers=True, reports_ends=True)) as reader:
        while left:
            slices, ended = reader.read(SLICE_RECORDS, 1.0)
            for batch in slices:
                yield worker.apply(batch, expected=0)
            left -= ended


if __name__ == "__main__":
    main(*sys.argv[1:])
