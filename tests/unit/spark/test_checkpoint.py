"""No start leaves a checkpoint folder behind, not even one that was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inorder.engines.micro_batch import checkpoint_folder, remove_abandoned

STARTERS = 8
STARTS = 40

HOLD = """
import sys
from inorder.engines.micro_batch import checkpoint_folder
with checkpoint_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_is_there_for_the_block_and_gone_after_it(tmp_path: Path) -> None:
    with checkpoint_folder() as folder:
        assert Path(folder).parent.parent == tmp_path
        assert Path(folder).parent.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_block_removes_it_as_well(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), checkpoint_folder():
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_start_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().strip()).parent
        assert remove_abandoned(tmp_path) == []
        assert folder.is_dir()
        holder.kill()
        holder.wait()
    assert remove_abandoned(tmp_path) == [folder]
    assert not folder.exists()


def test_a_folder_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "inorder-checkpoint-new").mkdir()
    assert remove_abandoned(tmp_path) == []


def test_queries_that_start_at_once_leave_each_others_folders_alone() -> None:
    together = threading.Barrier(STARTERS)

    def start(_: int) -> list[bool]:
        found = []
        for _ in range(STARTS):
            together.wait(60)
            with checkpoint_folder() as folder:
                together.wait(60)  # until all have looked for what is left behind
                found.append(Path(folder).parent.is_dir())
        return found

    with ThreadPoolExecutor(STARTERS) as pool:
        assert list(pool.map(start, range(STARTERS))) == [[True] * STARTS] * STARTERS
