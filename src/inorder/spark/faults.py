"""What Spark's errors mean to us, which of several is told, and how long to wait before the next try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import AnalysisException, PySparkException

from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, PermanentError, TransientError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0

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


def environment(error: Exception) -> TransientError:
    """A failure of Spark's, as one that is waited out."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return TransientError(f"Spark: {text[0][:300]}", hint="It starts again from the pointers.")


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
        raise PermanentError("Spark's JVM went away.", hint="Start the pipeline again.") from error
    except (PySparkException, Py4JError) as error:
        raise environment(error) from error


def raise_gravest(errors: list[InorderError]) -> None:
    """Raises one of several errors, if there is any."""
    if errors:
        raise min(errors, key=gravity)
