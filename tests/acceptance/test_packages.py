"""The wheel in an environment that has nothing but what `pip install inorder` brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
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


def core_packages() -> set[str]:
    """The packages that the dependencies without extras bring."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import dependencies, json, tomllib; "
    code += "print(json.dumps(sorted(dependencies.closure(json.loads(sys.argv[1])))))"
    core = tomllib.loads(page("pyproject.toml"))["project"]["dependencies"]
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps(core)], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and the core dependencies, linked from this one: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    [site] = folder.glob("lib/python3*/site-packages")
    for name in core_packages():
        home = Path(str(metadata.distribution(name).locate_file("")))
        for top in {file.parts[0] for file in metadata.files(name) or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(home / top)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    command = [*pip, "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture
def run(bare: Path, tmp_path: Path) -> Run:
    """Runs a program of the bare environment in an empty folder."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}

    def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(bare / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run_program


def test_an_installation_without_extras_publishes(run: Run) -> None:
    assert run("inorder", "--version").stdout == f"inorder {metadata.version('inorder')}\n"
    assert run("inorder", "init", "--yes", "--database", "sqlite:///shop.db").returncode == 0
    installed = run("inorder", "schema", "install")
    assert "created table outbox" in installed.stderr, installed.stderr
    published = run("python", "-c", PUBLISH)
    assert published.returncode == 0, published.stderr
    read = "import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT topic, key FROM outbox').fetchall())"
    assert run("python", "-c", read).stdout == "[('orders', b'42')]\n"


@pytest.mark.parametrize(("command", "extra"), [(("up",), "embedded"), (("web",), "web")])
def test_a_command_that_needs_an_extra_names_it(run: Run, command: tuple[str, ...], extra: str) -> None:
    ended = run("inorder", *command)
    assert ended.returncode in (3, 4), ended.stderr
    assert f"inorder[{extra}]" in ended.stderr


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    built = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert built == {name for name in ours if "__pycache__" not in name}
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in names if "licenses/" in name}
