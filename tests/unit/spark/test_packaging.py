"""The archive for a cluster unpacks anywhere, and its Python imports inorder from it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

import inorder
from inorder.engines.session import worker_hint
from inorder.model.errors import ConfigurationError
from inorder.spark import packaging, submit
from inorder.spark.packaging import Package, distributions, package, required, write_archive

SHOWS = "import inorder, json, orjson, sys; print(json.dumps([inorder.__file__, orjson.__file__, sys.argv[1]]))"


def test_the_archive_unpacks_and_its_python_imports_inorder(tmp_path: Path) -> None:
    found = distributions(())
    write_archive(tmp_path / "packed", [found["inorder"], found["orjson"]], Path(inorder.__file__).parent)
    with tarfile.open(tmp_path / "packed") as tar:
        tar.extractall(tmp_path / "node", filter="data")
    # The interpreter that this environment was made from has none of the packages.
    bare = {"PATH": os.environ["PATH"], "INORDER_PYTHON": str(Path(sys._base_executable))}  # type: ignore[attr-defined]
    line = [str(tmp_path / "node" / "bin" / "python"), "-c", SHOWS, "a b"]
    ran = subprocess.run(line, env=bare, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    *found, argument = json.loads(ran.stdout)
    assert [str(tmp_path / "node") in each for each in found] == [True, True]
    assert argument == "a b"


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "inorder"
    source.mkdir()
    (source / "__init__.py").write_text("x = 1\n")
    found = [distributions(())["structlog"]]
    for name in ("a", "b"):
        write_archive(tmp_path / name, found, source)
        (source / "__init__.py").touch()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_jars_are_listed_with_what_a_registry_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "write_archive", lambda archive, _found, _package: archive.touch())
    made = package(tmp_path)
    assert made.jar_folder is None
    assert made.job.read_text() == Path(submit.__file__).read_text()
    (connector,) = [jar for jar in made.as_dict()["jars"] if "spark-sql-kafka" in jar["coordinates"]]
    assert connector["file"] == f"spark-sql-kafka-0-10_2.13-{connector['coordinates'].rpartition(':')[2]}.jar"
    assert len(connector["sha256"]) == 64
    assert {"delta-spark_4.2_2.13", "delta-storage"} <= {
        jar["coordinates"].split(":")[1] for jar in made.as_dict()["jars"]
    }
    assert f"--archives {made.archive}#environment" in made.submit_line()
    assert not any(each.startswith(("pyspark==", "py4j==")) for each in made.packages), "a cluster has its own"
    assert {"pyarrow", "psycopg-binary"} <= {each.partition("==")[0] for each in made.packages}


def test_the_driver_runs_in_this_python_because_spark_unpacks_the_archive_for_tasks_only(tmp_path: Path) -> None:
    made = Package(tmp_path / "a.tar.gz", tmp_path / "job.py", "3.11", (), (), None)
    variables, _, _ = made.submit_line().partition(" spark-submit ")
    driver = dict(each.split("=") for each in shlex.split(variables))
    assert driver == {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "./environment/bin/python"}


def test_only_what_is_required_is_packed() -> None:
    found = distributions(())
    assert {"inorder", "orjson", "pydantic", "pydantic-core", "psycopg-binary"} <= found.keys()
    assert found.keys().isdisjoint({"pytest", "mypy", "pyarrow", "pyspark"})
    assert list(required(["a>=1; extra == 'x'", "B.c[d, e] (<2) ; python_version > '3'", ""], ["y"])) == [
        ("b-c", frozenset({"d", "e"}))
    ]


def test_an_environment_without_inorder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ConfigurationError, match="not installed in this Python"):
        distributions(())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ModuleNotFoundError: No module named 'inorder'", "set PYSPARK_PYTHON"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "set PYSPARK_PYTHON"),
        ("ZeroDivisionError: division by zero", "log of Spark's executors"),
    ],
)
def test_a_node_without_inorder_is_told_how_to_get_it(line: str, says: str) -> None:
    assert says in worker_hint(line)
