"""`inorder` on a machine whose clock is set: `python stepping_relay.py FILE relay run --config …`.

FILE holds the seconds by which the process's wall clock differs from the machine's, and may change at any time. Only
`time.time` and `datetime.now` follow it: what measures spans (`time.monotonic`) and what Kafka's client uses do not, as
on a real machine whose clock an operator or NTP sets.
"""

from __future__ import annotations

import datetime
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypeAlias

LOOK_SECONDS = 0.05

_Real: TypeAlias = datetime.datetime
_time, _time_ns = time.time, time.time_ns
_step = 0.0


class _AnyDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Real)


class SteppingDatetime(_Real, metaclass=_AnyDatetime):
    """A `datetime` whose present is that of the process."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _Real.now(tz) + datetime.timedelta(seconds=_step)


def _follow(file: Path) -> None:
    global _step
    while True:
        _step = float(file.read_text() or _step)
        threading.Event().wait(LOOK_SECONDS)


if __name__ == "__main__":
    threading.Thread(target=_follow, args=[Path(sys.argv.pop(1))], daemon=True).start()
    # Before anything of inorder is imported, so that every module gets these.
    datetime.datetime = SteppingDatetime  # type: ignore[misc]  # replaced only in this process
    time.time = lambda: _time() + _step
    time.time_ns = lambda: _time_ns() + int(_step * 1e9)
    from inorder.cli.main import main

    sys.exit(main())
