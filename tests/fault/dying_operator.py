"""`inorder` that dies during a switch: `python dying_operator.py FILE topics failover …`.

The process kills itself right after each effect, once for each kind of effect in each phase; FILE records which. So the
same command, run repeatedly, dies once at every step and then succeeds.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from inorder.cli.main import main
from inorder.topics.failover import Failover
from inorder.topics.generations import TopicState
from inorder.topics.switch import Step


class DyingFailover(Failover):
    """Takes a step, and dies after it if it is the first of its kind."""

    deaths: Path

    def _take(self, step: Step, state: TopicState) -> None:
        super()._take(step, state)
        name = f"{state.phase}.{type(step).__name__}\n"
        if name not in self.deaths.read_text():
            with self.deaths.open("a") as file:
                file.write(name)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    import inorder.operate.topics

    DyingFailover.deaths = Path(sys.argv.pop(1))
    inorder.operate.topics.Failover = DyingFailover  # type: ignore[attr-defined]  # replaced only here
    sys.exit(main())
