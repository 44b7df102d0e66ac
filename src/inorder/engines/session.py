"""A Spark session that suits inorder's jobs, and what Spark's errors mean.

The session logs errors only, is in UTC, listens on loopback when it is local, and its workers can import inorder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from inorder.engines.slice_work import jittered
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, TransientError

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
    """The session of this process, started if there is none; `options` override the properties below.

    `jars` are those of the Kafka connector (`inorder.embedded.spark_jars()` fetches them).
    """
    # The driver's interpreter has the dependencies of inorder, so local workers must use the same one.
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
        # Spark's default profile logs a page of warnings before setLogLevel takes effect.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Ordered paths have no shuffle, and the optimizer must not add one.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # A slice is held in memory on both sides; without this limit, 10,000 large records would be one slice.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
        # Over TCP each task waited 40 ms for its records, here 15. The likely cause is Nagle's algorithm: the records
        # come in a second small write, held back until the first is acknowledged, which the worker delays.
        "spark.python.unix.domain.socket.enabled": "true",
        # Kills Python workers that hang, so that a stop does not wait for them.
        "spark.task.reaper.enabled": "true",
        "spark.executorEnv.PYTHONPATH": _python_path(),
    }
    if master.startswith("local"):
        properties |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return properties


def _python_path() -> str:
    """Lets workers import this package when it is run from its sources rather than installed."""
    source = str(Path(__file__).parents[2])
    return os.pathsep.join(part for part in (source, os.environ.get("PYTHONPATH", "")) if part)


FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0

_START_AGAIN = "Start the pipeline again; it continues from the pointers. The log of Spark's master may say why."

SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)
"""What a call into the JVM raises. When the JVM is gone, py4j passes the socket's own `ConnectionError` on."""

STOP_BUDGET_SECONDS = 7.0
"""How long the current slice may take at a stop; a service has 10 s in all, and Spark needs the rest to end."""


class Backoff:
    """Exponential pauses between failures, short again after progress; by chance a fifth shorter or longer."""

    def __init__(self) -> None:
        self._last = FIRST_PAUSE_SECONDS

    def after(self, *, progress: bool) -> float:
        """The seconds to wait after a failure."""
        self._last = FIRST_PAUSE_SECONDS if progress else min(2 * self._last, LONGEST_PAUSE_SECONDS)
        return jittered(self._last)


def stop_session(spark: SparkSession) -> None:
    """Stops a session; one whose JVM is gone has nothing left to stop and must not hide the error of the job."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def error_rank(error: Exception) -> int:
    """Ranks errors of several tasks: the one to raise, which must not be retried, comes first."""
    return 0 if isinstance(error, GuaranteeError) else 2 if isinstance(error, TransientError) else 1


def classify_spark_error(error: Exception) -> InorderError:
    """A failure of Spark as a `TransientError`, or as a `PermanentError` if its context was stopped."""
    if _is_stopped():
        return PermanentError(f"Spark was stopped: {_first_line(error)}", hint=_START_AGAIN)
    return TransientError(f"Spark: {_first_line(error)}", hint="It starts again from the pointers.")


def _first_line(error: Exception) -> str:
    """The first informative line of an error; py4j's first line only names the object that it called."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[1] if isinstance(error, Py4JError) and len(lines) > 1 else lines[0]
    return line.removeprefix(": ")[:300]


def raise_if_stopped() -> None:
    """Raises `PermanentError` if something else stopped Spark; a query then ends without an error."""
    if _is_stopped():
        raise PermanentError("Spark was stopped from outside.", hint=_START_AGAIN)


def _is_stopped() -> bool:
    """Whether the context of this process was stopped in its JVM, as a cluster's master does; it cannot be revived."""
    context = SparkContext._active_spark_context
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except (Py4JError, ConnectionError):
        return True  # the JVM does not answer


@contextmanager
def spark_errors() -> Iterator[None]:
    """Converts errors of starting and stopping a query or a job."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark refused the query: {str(error).splitlines()[0]}",
            hint="Create the session with the jars of its Kafka connector (inorder.embedded.spark_jars).",
        ) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise PermanentError("Spark's JVM has exited.", hint=_START_AGAIN) from error
    except SPARK_FAILURES as error:
        raise classify_spark_error(error) from error


def raise_gravest(errors: list[InorderError]) -> None:
    """Raises the highest-ranked of several errors, if there is any."""
    if errors:
        raise min(errors, key=error_rank)
