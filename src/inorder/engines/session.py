"""The Spark session of a job, and what Spark's errors mean.

A job takes the session that it is given, starts Spark as `spark-submit` says, or starts its own; in this order. In the
first two cases Spark is yours: the job runs beside, on a session with settings of its own, or sets what is unset. A
Spark of ours logs errors only, listens on loopback when it is local, and its workers can import inorder.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # it ships no types
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # as above
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from inorder.embedded import delta_jars, spark_jars
from inorder.engines.running import ANY_SPARK, SUBMITTED, SparkChoice
from inorder.engines.slice_work import jittered
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, TransientError

log = logging.getLogger("inorder.pipeline")

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine, each task tried four times; plain `local[*]` would try once."""

CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_PROPERTIES = {
    "spark.sql.extensions": DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What Spark must be started with to write Delta tables, besides the jars."""

_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`, whose JVM a script connects to."""
SHARED_BY = "inorder.sharedBy"
"""A property of a job's session: how many jobs divide the cores among them."""


@contextmanager
def open_session(
    name: str,
    choice: SparkChoice = ANY_SPARK,
    *,
    needs_kafka: bool = False,
    needs_delta: bool = False,
    has_ui: bool = False,
) -> Iterator[SparkSession]:
    """The session of a job: yours, or one that is started for it and stopped after it.

    `needs_kafka`: the job reads Kafka with Spark's connector, which is downloaded where Spark is started here.
    `needs_delta`: it writes Delta tables, and the same holds for Delta Lake.
    """
    yours = choice.session or SparkSession.getActiveSession()
    if yours is not None:
        if needs_delta:
            _check_delta(yours)
        session = _beside(yours, choice.shared_by or 1)
        with nullcontext() if choice.shared_by else watch_executors(session):
            yield session
        return
    spark = start_session(name, choice, needs_kafka=needs_kafka, needs_delta=needs_delta, has_ui=has_ui)
    try:
        with watch_executors(spark):
            yield spark
    finally:
        stop_session(spark)


def _check_delta(yours: SparkSession) -> None:
    if DELTA_EXTENSION not in (yours.conf.get("spark.sql.extensions", "") or ""):
        properties = " ".join(f"--conf {name}={value}" for name, value in DELTA_PROPERTIES.items())
        raise ConfigurationError(
            "A table of the job is a Delta table, and this Spark was started without Delta Lake.",
            hint=f"Start it with --jars {','.join(delta_jars())} {properties}.",
        )


LOOK_FOR_EXECUTORS_SECONDS = 5.0
EXECUTORS_MISSING_SECONDS = 10.0


class ExecutorWatch:
    """Decides when to say that a job waits for executors, and that it has some again; each is said once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._missing_since: float | None = None
        self._is_said = False

    def look(self, slots: int) -> Literal["missing", "found"] | None:
        """What to say, given how many tasks can run now."""
        if slots:
            was_said, self._missing_since, self._is_said = self._is_said, None, False
            return "found" if was_said else None
        if self._missing_since is None:
            self._missing_since = self._clock()
        if self._is_said or self._clock() - self._missing_since < EXECUTORS_MISSING_SECONDS:
            return None
        self._is_said = True
        return "missing"


@contextmanager
def watch_executors(spark: SparkSession) -> Iterator[None]:
    """Logs when a cluster has no executor for the application: without that, a job would wait in silence."""
    over, watch = threading.Event(), ExecutorWatch()

    def look() -> None:
        while not over.wait(LOOK_FOR_EXECUTORS_SECONDS):
            try:
                news = watch.look(all_slots(spark))
            except (Py4JError, ConnectionError):
                return  # Spark is gone, which the job meets itself
            fields = {"master": spark.sparkContext.master, "application": spark.sparkContext.applicationId}
            if news == "missing":
                log.warning("pipeline.waiting_for_executors", extra=fields)
            elif news == "found":
                log.info("pipeline.executors_found", extra=fields)

    thread = threading.Thread(target=look, name="inorder-executors", daemon=True)
    if is_cluster(spark):
        thread.start()
    try:
        yield
    finally:
        over.set()


def is_cluster(spark: SparkSession) -> bool:
    """Whether executors are processes of their own, which may come and go."""
    master = spark.sparkContext.master or ""
    return master != "local" and not master.startswith("local[")


def all_slots(spark: SparkSession) -> int:
    """How many tasks can run at the same time; 0 while there is no executor."""
    scala = spark.sparkContext._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


LOOK_FOR_DECOMMISSIONED_SECONDS = 1.0


class DecommissionWatch:
    """Finds tasks whose executor is decommissioned; Spark lets it live until they end, and ours end on request only."""

    def __init__(self, spark: SparkSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark = spark
        self._clock = clock
        self._attempts: dict[int, int] = {}
        self._executors: dict[int, str] = {}
        self._due = clock()

    def join(self, index: int, attempt: int) -> None:
        """A task runs; `attempt` is Spark's id of it, -1 if unknown."""
        self._executors.pop(index, None)
        self._attempts[index] = attempt

    def leave(self, index: int) -> None:
        """A task has ended."""
        self._attempts.pop(index, None)
        self._executors.pop(index, None)

    def look(self) -> list[int]:
        """The tasks to be asked to end; asks Spark once a second."""
        if self._clock() < self._due or not is_cluster(self._spark):
            return []
        self._due = self._clock() + LOOK_FOR_DECOMMISSIONED_SECONDS
        with suppress(*SPARK_FAILURES):  # a lost Spark is met elsewhere
            scheduler = self._spark.sparkContext._jsc.sc().taskScheduler()
            for index, attempt in list(self._attempts.items()):
                if index not in self._executors and (found := scheduler.taskIdToExecutorId().get(attempt)).isDefined():
                    self._executors[index] = found.get()
            on = dict(self._executors)
            leaving = {one for one in set(on.values()) if scheduler.getExecutorDecommissionState(one).isDefined()}
            return [index for index, executor in on.items() if executor in leaving]
        return []


def _beside(yours: SparkSession, shared_by: int = 1) -> SparkSession:
    """A session on the context of yours; what it sets does not concern yours, which lives on."""
    refuse_connect(yours)
    session = yours.newSession()
    session.conf.set(SHARED_BY, str(shared_by))
    for key, value in _SQL_PROPERTIES.items():
        session.conf.set(key, value)
    return session


def is_here(master: str) -> bool:
    """Whether the workers of a master are on this machine, where they can use the driver's Python.

    >>> [is_here(each) for each in ("local[2]", "spark://127.0.0.1:7077", "spark://head:7077", "yarn")]
    [True, True, False, False]
    """
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def worker_hint(line: str) -> str:
    """What to do about an error that ended a Python worker, whose last line this is."""
    if "No module named" in line or "PYTHON_VERSION_MISMATCH" in line:
        return (
            "Every node needs a Python with inorder: set PYSPARK_PYTHON, or ship one with --archives (docs/spark.md)."
        )
    return "The log of Spark's executors has the traceback."


def refuse_connect(session: object) -> None:
    """Raises `ConfigurationError` for a session of Spark Connect, whose driver is another process."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "The engines do not run through Spark Connect: they need the driver's own context.",
            hint="Submit the job to the cluster (docs/spark.md), or use the formats of inorder.spark.register.",
        )


def start_session(
    name: str,
    choice: SparkChoice = ANY_SPARK,
    *,
    needs_kafka: bool = False,
    needs_delta: bool = False,
    has_ui: bool = False,
) -> SparkSession:
    """Starts Spark as the settings say or, under `spark-submit`, as that was called.

    Properties come from `[pipeline.spark]`, then from `spark-submit` or spark-defaults.conf, then from here: only what
    is unset is set.
    """
    under_submit = is_submitted()
    gateway = SparkContext._gateway or _launch(choice, needs_kafka=needs_kafka, needs_delta=needs_delta)
    conf = SparkConf(_jvm=gateway.jvm)
    if under_submit:
        _check_submitted(conf, choice, gateway, needs_kafka)
        if is_here(conf.get("spark.master") or "") and not conf.get("spark.pyspark.python"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in choice.properties.items():
        conf.set(key, value)
    if not under_submit:
        # Spark has set these for the shell that it takes us for.
        conf.setMaster(choice.master or LOCAL_MASTER).set("spark.ui.showConsoleProgress", "false")
    if (conf.get("spark.app.name") or "") in ("", "pyspark-shell", *SUBMITTED):
        conf.setAppName(name)
    delta = DELTA_PROPERTIES if needs_delta and not under_submit else {}
    for key, value in (_properties(conf.get("spark.master") or "", has_ui=has_ui) | delta).items():
        conf.setIfMissing(key, value)
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    if needs_delta:
        _check_delta(session)
    if not under_submit:
        session.sparkContext.setLogLevel("ERROR")
    return session


def is_submitted() -> bool:
    """Whether `spark-submit` runs this process."""
    return _GATEWAY in os.environ


def _launch(choice: SparkChoice, *, needs_kafka: bool, needs_delta: bool) -> JavaGateway:
    """Starts the JVM, which reads spark-defaults.conf; the class path cannot be changed after that.

    That of `spark-submit` runs already.
    """
    if is_submitted():
        return launch_gateway()  # type: ignore[no-untyped-call]  # Spark leaves it untyped
    # The driver's interpreter has the dependencies of inorder, so local workers must use the same one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if (choice.master or LOCAL_MASTER).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "log4j2.configurationFile" not in options:
        # Spark's default profile logs a page of warnings before setLogLevel takes effect.
        os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -Dlog4j2.configurationFile={_LOGGING.as_uri()}".strip()
    conf = SparkConf(loadDefaults=False).setAll(list(choice.properties.items()))
    ours = [*(spark_jars() if needs_kafka else ()), *(delta_jars() if needs_delta else ())]
    if ours:
        conf.set("spark.jars", ",".join([*filter(None, (conf.get("spark.jars") or "").split(",")), *ours]))
    # A signal to our process group is for us: the JVM lives until we have stopped, or until our end closes its input.
    return launch_gateway(conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]  # as above


def _check_submitted(conf: SparkConf, choice: SparkChoice, gateway: JavaGateway, needs_kafka: bool) -> None:
    submitted = conf.get("spark.master")
    if choice.master is not None and submitted not in (None, choice.master):
        raise ConfigurationError(
            f"spark-submit was given the master {submitted}, and pipeline.master is {choice.master}.",
            hint="Remove pipeline.master from the settings, or start the job with `inorder pipeline run`.",
        )
    if needs_kafka and not _is_loadable(gateway, CONNECTOR):
        jars = ",".join(map(str, spark_jars()))
        raise ConfigurationError(
            "Spark's Kafka connector is not on the class path of spark-submit; the engine micro-batch needs it.",
            hint=f"Add --jars {jars} to spark-submit, or choose the engine resident.",
        )


def _is_loadable(gateway: JavaGateway, name: str) -> bool:
    return bool(gateway.jvm.org.apache.spark.util.Utils.classIsLoadable(name))


_SQL_PROPERTIES = {
    "spark.sql.session.timeZone": "UTC",
    # Ordered paths have no shuffle, and the optimizer must not add one.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
    # A slice is held in memory on both sides; without this limit, 40,000 large records would be one slice.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
}
"""What the jobs need of a session, be it yours or ours."""


def _properties(master: str, *, has_ui: bool) -> dict[str, str]:
    properties = _SQL_PROPERTIES | {
        "spark.ui.enabled": str(has_ui).lower(),
        "spark.ui.showConsoleProgress": "false",
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

    def __init__(self, first: float = FIRST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS) -> None:
        self._first, self._longest = first, longest
        self._last = first

    def after(self, *, progress: bool) -> float:
        """The seconds to wait after a failure."""
        self._last = self._first if progress else min(2 * self._last, self._longest)
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
    if is_spark_stopped():
        return PermanentError(f"Spark was stopped: {_first_line(error)}", hint=_START_AGAIN)
    return TransientError(f"Spark: {_first_line(error)}", hint="It starts again from the pointers.")


def _first_line(error: Exception) -> str:
    """The first informative line of an error; py4j's first line only names the object that it called."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[1] if isinstance(error, Py4JError) and len(lines) > 1 else lines[0]
    return line.removeprefix(": ")[:300]


def raise_if_stopped() -> None:
    """Raises `PermanentError` if something else stopped Spark; a query then ends without an error."""
    if is_spark_stopped():
        raise PermanentError("Spark was stopped from outside.", hint=_START_AGAIN)


def is_spark_stopped() -> bool:
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
            hint="Give the session the jars of inorder.embedded.spark_jars(), or choose the engine resident.",
        ) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise PermanentError("Spark's JVM has exited.", hint=_START_AGAIN) from error
    except SPARK_FAILURES as error:
        raise classify_spark_error(error) from error


def raise_gravest(errors: list[InorderError]) -> None:
    """Raises the highest-ranked of several errors, if there is any."""
    if errors:
        raise min(errors, key=error_rank)
