"""A Java that is missing, broken or too old is one clear sentence, and JAVA_HOME is honoured."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.embedded.jars import find_java, parse_version
from inorder.model.errors import UnreachableError


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_says(banner: str, version: int | None) -> None:
    assert parse_version(banner) == version


def test_no_java_anywhere_is_one_sentence_with_exit_code_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match="no java is on the PATH") as caught:
        find_java()
    assert caught.value.exit_code == 4
    assert "Java 17" in caught.value.hint


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match=str(tmp_path)):
        find_java()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path / "home", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == java


def test_a_java_from_the_path_is_taken_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    assert find_java() == java


def test_an_old_java_is_refused_with_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "echo 'java version \"1.8.0_202\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match="is Java 8; inorder needs 17"):
        find_java()


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense"])
def test_a_java_that_does_not_run_is_refused(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match="not a working Java"):
        find_java()
