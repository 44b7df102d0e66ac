"""The cache is where the user said, and a full or closed disk is one clear sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from inorder.embedded.folders import MEGABYTE, cache_folder, need_disk
from inorder.model.errors import UnreachableError


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("INORDER_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_cache_is_in_the_home_by_default(tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "home" / ".cache" / "inorder"


def test_the_platform_cache_folder_goes_before_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "inorder"


def test_inorder_cache_goes_before_all_and_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("INORDER_CACHE", "mine")
    assert cache_folder() == tmp_path / "mine"


def test_enough_disk_makes_the_folder(tmp_path: Path) -> None:
    need_disk(tmp_path / "a" / "b", 1, "Redis")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_full_disk_names_need_rest_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7 * MEGABYTE))
    with pytest.raises(UnreachableError, match=r"Redis needs 100 MB of disk space, and .* has 7 MB left") as caught:
        need_disk(tmp_path, 100, "Redis")
    assert caught.value.exit_code == 4
    assert "INORDER_CACHE" in caught.value.hint


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreachableError, match=r"cannot be used: Not a directory"):
        need_disk(tmp_path / "file" / "below", 1, "Redis")
