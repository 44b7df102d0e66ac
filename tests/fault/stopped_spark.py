"""`inorder` whose Spark can be stopped: `python stopped_spark.py FILE pipeline run …` stops it once FILE exists.

A cluster ends an application in this way: it stops the context in the JVM, and the Python process that created it gets
no notification.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark import SparkContext

from inorder.cli.main import main


def stop_spark_when_there_is(file: Path) -> None:
    pause = threading.Event()
    while not file.exists():
        pause.wait(0.05)
    context = SparkContext._active_spark_context
    assert context is not None
    context._jsc.sc().stop()


if __name__ == "__main__":
    threading.Thread(target=stop_spark_when_there_is, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    sys.exit(main())
