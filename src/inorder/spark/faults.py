"""What Spark's errors mean to us, which of several is told, and how long to wait before the next try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException

from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, TransientError

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
