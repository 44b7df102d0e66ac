"""goharvest is built once, from the pinned version, and a build that fails is one clear sentence.

A fake go replaces the tool chain: a Python program that provides a module and writes the program.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inorder.bench.peers import goharvest
from inorder.bench.peers.goharvest import GOHARVEST_REVISION, goharvest_program, with_new_client
from inorder.model.errors import ConfigurationError, UnreachableError

OLD = "gopkg.in/confluentinc/confluent-kafka-go.v1/kafka"
NEW = "github.com/confluentinc/confluent-kafka-go/v2/kafka"
FAKE_GO = """#!{python}
import json, pathlib, sys
with pathlib.Path({calls!r}).open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if {fails!r} in sys.argv:
    sys.exit("no such module here")
if sys.argv[1] == "mod":
    print(json.dumps({{"Dir": {module!r}}}))
else:
    built = pathlib.Path("goharvest/harvest.go").read_text() + pathlib.Path("goneli/go.mod").read_text()
    pathlib.Path("program").write_text(built)
"""


class GoToolChain:
    """What the fake go should do, and the arguments it received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self._calls = folder / "calls"
        self._module = folder / "module"
        self._module.mkdir()
        (self._module / "harvest.go").write_text(f'import "{OLD}"\n')
        (self._module / "harvest_test.go").write_text("package tests")
        self.plays()

    def plays(self, fails: str = "never") -> None:
        values = {"calls": str(self._calls), "fails": fails, "module": str(self._module)}
        path = self.folder / "go"
        path.write_text(FAKE_GO.format(python=sys.executable, **values))
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoToolChain:
    chain = GoToolChain(tmp_path)
    monkeypatch.setenv("INORDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{chain.folder}:/usr/bin:/bin")
    monkeypatch.delenv(goharvest.SOURCE_VARIABLE, raising=False)
    return chain


def test_only_the_imports_of_the_kafka_client_change() -> None:
    source = f'import (\n\t"fmt"\n\t"{OLD}"\n\t_ "{OLD}/librdkafka"\n)\n// {OLD} stays in words'
    changed = f'import (\n\t"fmt"\n\t"{NEW}"\n\t_ "{NEW}/librdkafka_vendor"\n)\n// {OLD} stays in words'
    assert with_new_client(source) == changed


def test_it_is_built_once_and_then_lies_in_the_cache(go: GoToolChain, capsys: pytest.CaptureFixture[str]) -> None:
    program = goharvest_program()
    assert goharvest_program() == program
    assert program.read_text() == f'import "{NEW}"\nmodule github.com/obsidiandynamics/goneli\n\ngo 1.21\n'
    assert [call.split()[0] for call in go.calls] == ["mod", "mod", "build"]
    assert GOHARVEST_REVISION in go.calls[0]
    assert capsys.readouterr().err == "building goharvest … some minutes\n"
    assert [path.name for path in program.parent.glob("*.partial")] == []


def test_without_go_the_next_step_is_named(go: GoToolChain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(go.folder / "nothing"))
    with pytest.raises(UnreachableError, match="Go was not found on the PATH") as error:
        goharvest_program()
    assert "Install Go" in str(error.value)


def test_a_module_that_no_proxy_has_is_told_with_the_way_out(go: GoToolChain) -> None:
    go.plays(fails="download")
    with pytest.raises(UnreachableError, match="no such module here") as error:
        goharvest_program()
    assert goharvest.SOURCE_VARIABLE in str(error.value)
    go.plays()
    assert goharvest_program().is_file()


def test_a_clone_of_the_user_is_taken_at_the_revision_that_was_tested(
    go: GoToolChain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    _repository(clone)
    monkeypatch.setenv(goharvest.SOURCE_VARIABLE, str(clone))
    monkeypatch.setattr(goharvest, "GOHARVEST_REVISION", "tested")
    assert goharvest_program().read_text().startswith("package tested\n")
    assert [call.split()[0] for call in go.calls] == ["mod", "build"]


@pytest.mark.usefixtures("go")
def test_a_clone_that_is_not_there_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(goharvest.SOURCE_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match="nowhere, which is not a folder"):
        goharvest_program()


def _repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "harvest.go").write_text("package tested\n")
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "one"], ["tag", "tested"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)  # noqa: S607  whichever git is there
    (folder / "harvest.go").write_text("package newer\n")
