"""The wheel in environments that have only what pip installs with it: without extras, and with those of the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, page

pytestmark = pytest.mark.full

PUBLISH = """
import inorder
import sqlalchemy as sa

settings = inorder.Settings.load()
engine = sa.create_engine(settings.database.require_url())
publisher = inorder.Publisher(settings)
with engine.begin() as connection:
    publisher.publish(inorder.Message("orders", key=42, value={"id": 42, "data": {}}), connection)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [built] = folder.glob("*.whl")
    return built


def packages_of(*extras: str) -> set[str]:
    """The packages that pip installs with inorder and these extras."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import dependencies, json, tomllib; "
    code += "print(json.dumps(sorted(dependencies.closure(json.loads(sys.argv[1])))))"
    project = tomllib.loads(page("pyproject.toml"))["project"]
    wanted = [*project["dependencies"], *(each for name in extras for each in project["optional-dependencies"][name])]
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps(wanted)], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(ran.stdout))


def install(wheel: Path, folder: Path, packages: set[str]) -> Path:
    """A virtual environment with the wheel and packages that are linked from this one: nothing is downloaded."""
    venv.create(folder, with_pip=False)
    [site] = folder.glob("lib/python3*/site-packages")
    for name in packages:
        home = Path(str(metadata.distribution(name).locate_file("")))
        for top in {file.parts[0] for file in metadata.files(name) or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(home / top)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    command = [*pip, "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


def run_program(
    environment: Path, folder: Path, program: str, *arguments: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs a program of an environment in a folder, without settings of ours."""
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ}
    command = [str(environment / "bin" / program), *arguments]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("bare"), packages_of())


@pytest.fixture
def run(bare: Path, tmp_path: Path) -> Run:
    """Runs a program of the environment without extras in an empty folder."""
    return partial(run_program, bare, tmp_path)


def test_an_installation_without_extras_publishes(run: Run) -> None:
    assert run("inorder", "--version").stdout == f"inorder {metadata.version('inorder')}\n"
    assert run("inorder", "init", "--yes", "--database", "sqlite:///shop.db").returncode == 0
    installed = run("inorder", "schema", "install")
    assert "created table outbox" in installed.stderr, installed.stderr
    published = run("python", "-c", PUBLISH)
    assert published.returncode == 0, published.stderr
    read = "import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT topic, key FROM outbox').fetchall())"
    assert run("python", "-c", read).stdout == "[('orders', b'42')]\n"


@pytest.mark.parametrize(("command", "extra"), [(("up",), "embedded"), (("demo",), "embedded"), (("web",), "web")])
def test_a_command_that_needs_an_extra_names_it(run: Run, command: tuple[str, ...], extra: str) -> None:
    ended = run("inorder", *command)
    assert ended.returncode in (3, 4), ended.stderr
    assert f"inorder[{extra}]" in ended.stderr


@pytest.mark.spark
@pytest.mark.timeout(480)
def test_the_demo_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    environment = install(wheel, tmp_path / "environment", packages_of("embedded", "spark"))
    ended = run_program(environment, tmp_path, "inorder", "demo", "--events", "500", "--json", timeout=420)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert 0 < summary["committed"] == summary["published"] == summary["applied"] + summary["rejected"]
    assert (summary["lost"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    built = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert built == {name for name in ours if "__pycache__" not in name}
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in names if "licenses/" in name}
