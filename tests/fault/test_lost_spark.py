"""Spark stopped or killed under a service: the service reports it and ends, and the next start continues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inorder.embedded.stack import Program
from tests.fault import stopped_spark
from tests.fault.engine_ordeal import Stage
from tests.fault.filling import filling
from tests.fault.processes import kill, spark_of
from tests.integration.pipeline.engines import ENGINES, SPARK_WAIT

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(900)]


def stop(_service: Program, file: Path) -> None:
    file.touch()


def kill_jvm(service: Program, _file: Path) -> None:
    assert service.pid is not None
    kill(spark_of(service.pid))


@pytest.mark.parametrize("end", [stop, kill_jvm])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_service_whose_spark_is_gone_ends_with_an_error_and_the_next_one_goes_on(
    stage: Stage, tmp_path: Path, engine: str, end: Callable[[Program, Path], None]
) -> None:
    file = tmp_path / "stop"
    with filling(stage, tmp_path, engine, program=[sys.executable, stopped_spark.__file__, str(file)]) as service:
        with stage.load(), stage.witness():
            end(service, file)
            stage.eventually(service.has_ended, SPARK_WAIT)
            assert "Start the pipeline again" in service.log_path.read_text()
            service.kill()
            file.unlink(missing_ok=True)
            service.start()
            stage.wait_for_progress()
        stage.verify()
