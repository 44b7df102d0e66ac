"""Which failures are retried, and which are final."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkContext
from pyspark.errors import PySparkException

from inorder.engines.session import classify_spark_error, raise_if_stopped, spark_errors
from inorder.model.errors import PermanentError, TransientError


def say_yes() -> bool:
    return True


def say_no() -> bool:
    return False


def say_nothing() -> bool:
    raise Py4JError("no answer")


@pytest.fixture
def has_stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Sets the JVM's answer to whether its context was stopped."""

    def answer(how: Callable[[], bool]) -> None:
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=how)))
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)

    return answer


def fail() -> None:
    with spark_errors():
        raise PySparkException("Job aborted\n at java")


def test_a_failure_of_a_spark_that_lives_is_waited_out(has_stopped: Callable[[Callable[[], bool]], None]) -> None:
    has_stopped(say_no)
    with pytest.raises(TransientError, match="Job aborted"):
        fail()
    raise_if_stopped()


@pytest.mark.parametrize("how", [say_yes, say_nothing])
def test_a_spark_that_was_stopped_or_does_not_answer_is_not_waited_for(
    has_stopped: Callable[[Callable[[], bool]], None], how: Callable[[], bool]
) -> None:
    has_stopped(how)
    with pytest.raises(PermanentError, match="Spark was stopped: Job aborted") as caught:
        fail()
    assert "Start the pipeline again" in caught.value.hint
    with pytest.raises(PermanentError, match="from outside"):
        raise_if_stopped()


def test_without_a_context_it_is_only_a_failure() -> None:
    assert isinstance(classify_spark_error(RuntimeError("no Spark here")), TransientError)


def test_what_java_said_is_told_and_not_which_object_was_called() -> None:
    error = Py4JError("An error occurred while calling o1.collect.\n: SparkException: Lost executor 4\n at java")
    assert str(classify_spark_error(error)).startswith("Spark: SparkException: Lost executor 4 It starts")
    assert str(classify_spark_error(Py4JError("no answer"))).startswith("Spark: no answer It starts")
