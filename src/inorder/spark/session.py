"""A Spark session that suits our jobs: quiet, in UTC, on loopback, with workers that can import us."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine, each task tried four times; plain `local[*]` would try once."""

_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def spark_session(
    name: str,
    *,
    jars: Sequence[str | Path],
    master: str = LOCAL_MASTER,
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started if there is none; `options` win over our properties.

    `jars` are those of the Kafka connector (`inorder.embedded.spark_jars()` fetches them).
    """
    # The driver's interpreter is the one that has our dependencies, so local workers must be the same.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (_properties(master, jars) | dict(options or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _properties(master: str, jars: Sequence[str | Path]) -> dict[str, str]:
    properties = {
        "spark.jars": ",".join(str(jar) for jar in jars),
        # Spark's own profile writes a page of warnings before a session could ask it not to.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Ordered paths have no shuffle, and nothing may put one in.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # A slice is held in memory on both sides; without this, 10,000 large records would be one.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
        # Over TCP each task waited 40 ms for its records, here 15. It looks like Nagle's algorithm: they come in a
        # second small write, held back until the first is acknowledged, and the worker has nothing to answer yet.
        "spark.python.unix.domain.socket.enabled": "true",
        # A kill signal must end Python workers that hang, or a stop would wait for them.
        "spark.task.reaper.enabled": "true",
        "spark.executorEnv.PYTHONPATH": _python_path(),
    }
    if master.startswith("local"):
        properties |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return properties


def _python_path() -> str:
    """Where workers find this package when it is run from its sources rather than installed."""
    ours = str(Path(__file__).parents[2])
    return os.pathsep.join(part for part in (ours, os.environ.get("PYTHONPATH", "")) if part)
