"""What makes a second start fast never gives two servers one identity, and is not required."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inorder.embedded.jars import ClassArchive, Jar, JarSet
from inorder.embedded.kafka import copy_storage, keep_as_template, new_identity

JARS = JarSet("broker", "Kafka", 1, (Jar("org", "kafka", "1", "", "ab"),))


def formatted(folder: Path) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text("#\nnode.id=1\ndirectory.id=dir\nversion=1\ncluster.id=cluster\n")
    (folder / "bootstrap.checkpoint").write_bytes(b"\x00\x01features")
    return folder


def properties(folder: Path) -> dict[str, str]:
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_copied_storage_is_formatted_but_another_cluster(tmp_path: Path) -> None:
    template = formatted(tmp_path / "template")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        copy_storage(template, tmp_path / name)
    one, two = properties(tmp_path / "one"), properties(tmp_path / "two")
    assert len({one["cluster.id"], two["cluster.id"], "cluster"}) == 3
    assert len({one["directory.id"], two["directory.id"], "dir"}) == 3
    assert (one["node.id"], one["version"]) == ("1", "1")
    assert (tmp_path / "two" / "bootstrap.checkpoint").read_bytes() == b"\x00\x01features"


def test_the_first_storage_kept_is_the_template(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "first"), formatted(tmp_path / "second")
    (second / "bootstrap.checkpoint").write_bytes(b"other")
    template = tmp_path / "cache" / "storage"
    keep_as_template(first, template)
    keep_as_template(second, template)
    assert (template / "bootstrap.checkpoint").read_bytes() == b"\x00\x01features"
    assert [path.name for path in template.parent.iterdir()] == ["storage"]


def test_identities_are_such_as_kafka_takes() -> None:
    identities = {new_identity() for _ in range(500)}
    assert len(identities) == 500
    assert all(len(identity) == 22 and identity[0] != "-" for identity in identities)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("INORDER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "java").touch()
    return ClassArchive.of(JARS, tmp_path / "java", tmp_path)


def test_the_first_server_writes_the_archive_and_the_next_uses_it(archive: ClassArchive) -> None:
    assert f"-XX:ArchiveClassesAtExit={archive.written}" in archive.flags()
    archive.written.write_bytes(b"classes")
    archive.collect()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.flags()
    assert archive.path.read_bytes() == b"classes"
    assert not archive.written.exists()


def test_what_a_killed_server_left_of_an_archive_is_not_used(archive: ClassArchive) -> None:
    archive.written.write_bytes(b"half of the cla")
    assert f"-XX:ArchiveClassesAtExit={archive.written}" in archive.flags()
    assert not archive.written.exists()
    archive.collect()
    assert not archive.path.exists()


def test_an_updated_java_gets_an_archive_of_its_own(archive: ClassArchive, tmp_path: Path) -> None:
    os.utime(tmp_path / "java", (1, 1))
    assert ClassArchive.of(JARS, tmp_path / "java", tmp_path).path != archive.path


def test_an_archive_that_cannot_be_kept_stops_nothing(archive: ClassArchive) -> None:
    archive.written.write_bytes(b"classes")
    archive.path.parent.parent.mkdir()
    archive.path.parent.write_text("a file where the folder should be")
    archive.collect()
    assert not archive.written.exists()
