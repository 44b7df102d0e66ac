"""A Spark session that suits our jobs: quiet, in UTC, on loopback, with workers that can import us."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

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


# One set of Kafka settings for two clients: librdkafka's properties as the Java client spells them.
#
# Only what decides how to reach the cluster is carried over. Tuning properties mean different things in the two clients
# and stay with librdkafka.

_SAME = ("bootstrap.servers", "client.id", "security.protocol")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """The Java client's properties for a cluster that librdkafka reaches with `properties`."""
    found = {name: str(properties[name]) for name in _SAME if name in properties}
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    return found | _sasl(properties) | _tls(properties)


def _sasl(properties: Mapping[str, object]) -> dict[str, str]:
    mechanism = str(properties.get("sasl.mechanisms", properties.get("sasl.mechanism", "")))
    if mechanism not in _MODULES:
        return {}
    user, password = (_escaped(properties.get(f"sasl.{name}", "")) for name in ("username", "password"))
    login = f'{_MODULES[mechanism]} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"')


def _tls(properties: Mapping[str, object]) -> dict[str, str]:
    if "ssl.ca.location" not in properties:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(properties["ssl.ca.location"])}


# What Spark's errors mean to us, which of several is told, and how long to wait before the next try.

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0

_START_AGAIN = "Start the pipeline again; it goes on from the pointers. The log of Spark's master may say why."

STOP_BUDGET_SECONDS = 7.0
"""What is in hand may take so long at a stop; a service has 10 s in all, and Spark's own end needs the rest."""


class Pauses:
    """Longer and longer waits between failures, short again after progress."""

    def __init__(self) -> None:
        self._last = FIRST_PAUSE_SECONDS

    def after(self, *, progress: bool) -> float:
        """How many seconds to wait after a failure."""
        self._last = FIRST_PAUSE_SECONDS if progress else min(2 * self._last, LONGEST_PAUSE_SECONDS)
        return self._last


def gravity(error: Exception) -> int:
    """The error to raise when tasks fail in different ways: one that must not be retried goes first."""
    return 0 if isinstance(error, GuaranteeError) else 2 if isinstance(error, TransientError) else 1


def environment(error: Exception) -> InorderError:
    """A failure of Spark's, as one that is waited out; unless it is the last."""
    if _is_over():
        return PermanentError(f"Spark was stopped: {_first_words(error)}", hint=_START_AGAIN)
    return TransientError(f"Spark: {_first_words(error)}", hint="It starts again from the pointers.")


def _first_words(error: Exception) -> str:
    """What an error says first; py4j begins with the name of the object that it called, which tells nobody anything."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    telling = lines[1] if isinstance(error, Py4JError) and len(lines) > 1 else lines[0]
    return telling.removeprefix(": ")[:300]


def raise_if_over() -> None:
    """Raises `PermanentError` where Spark was stopped by somebody else: a query then ends as if all were well."""
    if _is_over():
        raise PermanentError("Spark was stopped, and not by us.", hint=_START_AGAIN)


def _is_over() -> bool:
    """Whether the context of this process was stopped in its JVM, as a cluster's master does; nothing revives it."""
    context = SparkContext._active_spark_context
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except Py4JError:
        return True  # the JVM does not answer


@contextmanager
def spark_errors() -> Iterator[None]:
    """Errors of starting and stopping a query or a job, in our families."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark refused the query: {str(error).splitlines()[0]}",
            hint="Make the session with the jars of its Kafka connector (inorder.embedded.spark_jars).",
        ) from error
    except Py4JNetworkError as error:
        raise PermanentError("Spark's JVM went away.", hint=_START_AGAIN) from error
    except (PySparkException, Py4JError) as error:
        raise environment(error) from error


def raise_gravest(errors: list[InorderError]) -> None:
    """Raises one of several errors, if there is any."""
    if errors:
        raise min(errors, key=gravity)
