"""A run folder has one living owner; what a dead one left is reused or removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inorder.embedded.folders import DataFolder, RunFolder
from inorder.model.errors import ConfigurationError

OWN_AND_WAIT = """
import sys
from pathlib import Path
from inorder.embedded.folders import RunFolder
folder = RunFolder.named(Path(sys.argv[1])) if len(sys.argv) > 1 else RunFolder.fresh()
print(folder.path, flush=True)
sys.stdin.read()
"""


MAKE_MANY = """
from inorder.embedded.folders import RunFolder
for _ in range(40):
    RunFolder.fresh().close()
"""


def owner(*arguments: str) -> subprocess.Popen[str]:
    """Another process that owns a folder until it is killed."""
    return another(OWN_AND_WAIT, *arguments)


def another(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *arguments]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def with_data(run: Path) -> Path:
    server = run / "redis"
    server.mkdir()
    data = DataFolder(server)
    data.make(None)
    data.mark_initialised()
    (data.path / "rows").write_text("1")
    (server / "redis.log").write_text("hello")
    return server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INORDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_fresh_folder_lies_in_the_cache_and_keeps_only_logs_after_a_clean_stop(cache: Path) -> None:
    run = RunFolder.fresh()
    server = with_data(run.path)
    run.close()
    assert run.path.parent == cache / "run"
    assert [path.name for path in server.iterdir()] == ["redis.log"]


def test_two_fresh_folders_are_two() -> None:
    first, second = RunFolder.fresh(), RunFolder.fresh()
    assert first.path != second.path
    first.close()
    second.close()


def test_a_named_folder_keeps_its_data(tmp_path: Path) -> None:
    run = RunFolder.named(tmp_path / "mine")
    server = with_data(run.path)
    run.close()
    assert DataFolder(server).is_initialised
    assert (server / "data" / "rows").read_text() == "1"


def test_a_living_owner_is_named_with_its_pid_and_the_folder(tmp_path: Path) -> None:
    with owner(str(tmp_path)) as process:
        first_line(process)
        with pytest.raises(ConfigurationError, match=f"{tmp_path} is in use .* process {process.pid}") as caught:
            RunFolder.named(tmp_path)
        process.kill()
    assert caught.value.exit_code == 3


def test_one_process_cannot_own_a_folder_twice(tmp_path: Path) -> None:
    run = RunFolder.named(tmp_path)
    with pytest.raises(ConfigurationError, match=str(os.getpid())):
        RunFolder.named(tmp_path)
    run.close()
    RunFolder.named(tmp_path).close()


def test_a_named_folder_of_a_killed_owner_is_taken_over_with_its_data(tmp_path: Path) -> None:
    with owner(str(tmp_path)) as process:
        first_line(process)
        server = with_data(tmp_path)
        process.kill()
    run = RunFolder.named(tmp_path)
    assert (server / "data" / "rows").exists()
    assert (tmp_path / "owner").read_text() == str(os.getpid())
    run.close()


def test_a_fresh_folder_of_a_killed_owner_loses_its_data_at_the_next_start() -> None:
    with owner() as process:
        left = Path(first_line(process))
        server = with_data(left)
        RunFolder.fresh().close()
        assert (server / "data" / "rows").exists(), "its owner still lives"
        process.kill()
    RunFolder.fresh().close()
    assert [path.name for path in server.iterdir()] == ["redis.log"]


def test_the_logs_of_the_last_runs_stay_and_older_ones_go(cache: Path) -> None:
    for _ in range(8):
        RunFolder.fresh().close()
    assert 5 <= len(list((cache / "run").iterdir())) <= 6


def test_stacks_that_start_at_once_do_not_trip_over_each_others_clearing() -> None:
    makers = [another(MAKE_MANY) for _ in range(4)]
    assert [maker.communicate()[0] for maker in makers] == [""] * 4
    assert [maker.returncode for maker in makers] == [0] * 4


def test_data_of_an_interrupted_first_start_do_not_count(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.make(None)
    assert not data.is_initialised
    data.discard()
    data.make(None)
    data.mark_initialised()
    assert data.is_initialised


def test_discarding_data_behind_a_foreign_link_touches_nothing_beside_them(tmp_path: Path) -> None:
    elsewhere = tmp_path / "lodging" / "data"
    elsewhere.mkdir(parents=True)
    (elsewhere.parent / "precious").touch()
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "data").symlink_to(elsewhere)
    DataFolder(tmp_path / "server").discard()
    assert not elsewhere.exists()
    assert (elsewhere.parent / "precious").exists()
    assert not (tmp_path / "server" / "data").is_symlink()
