"""`inorder` whose driver dies around a micro-batch: `python dying_driver.py MOMENT pipeline run upsert …`.

Spark plans what a batch will hold and runs it. MOMENT is `planned`, when only the first has happened, or `applied`,
when all slices of the batch are committed too. The second batch is the one: Spark writes down the first and, for an
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
    """Dies of its second batch."""

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
    inorder.engines.micro_batch._Attempt = DyingAttempt  # type: ignore[misc]  # the one place where it is put in
    sys.exit(main())
