"""A process that reads a small journal, then a large one, and prints how much memory the second one added."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import inorder
from inorder.model.journal import Key

EVERY = 500


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(settings: dict[str, dict[str, object]], topic: str) -> None:
    with inorder.Journals(inorder.Settings.load(None, **settings)) as journals:
        for _ in journals.journal(Key("small", topic)).read():
            pass
        gc.collect()
        before = most = resident_bytes()
        count = last = 0
        for record in journals.journal(Key("large", topic)).read():
            assert record.seq_nr > last
            last = record.seq_nr
            count += 1
            if count % EVERY == 0:
                most = max(most, resident_bytes())
    sys.stdout.write(json.dumps({"count": count, "grown": most - before}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
