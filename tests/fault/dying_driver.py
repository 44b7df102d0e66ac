"""`inorder` whose driver dies around a micro-batch: `python dying_driver.py MOMENT pipeline run upsert …`.

Spark plans a batch and then runs it. MOMENT is `planned`, when only the plan exists, or `applied`,
when all slices of the batch are committed too. The driver dies in the second batch: Spark logs the first and, for an
hour, no other.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import DataFrame

import inorder.engines.micro_batch
from inorder.cli.main import main
from inorder.engines.micro_batch import _Attempt

MOMENTS = ("planned", "applied")


class DyingAttempt(_Attempt):
    """Kills the process in its second batch."""

    moment: str

    def on_batch(self, batch: DataFrame, _batch_id: int) -> None:
        self._die_at("planned", _batch_id)
        super().on_batch(batch, _batch_id)
        self._die_at("applied", _batch_id)

    def _die_at(self, moment: str, batch_id: int) -> None:
        if batch_id > 0 and moment == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    DyingAttempt.moment = sys.argv.pop(1)
    inorder.engines.micro_batch._Attempt = DyingAttempt  # type: ignore[misc]  # replaced only here
    sys.exit(main())
