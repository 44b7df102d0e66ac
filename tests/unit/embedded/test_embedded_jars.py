"""Jars are fetched once, whole and unchanged, and a failed download is one clear sentence.

A fake java replaces Ivy: a Python program that prints version 17 and acts as the registry.
"""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inorder.embedded import jars
from inorder.embedded.jars import Jar, JarSet, fetch, ivy_jar, jar_set, spark_jars
from inorder.model.errors import UnreachableError

SETS = ("broker", "spark", "cassandra", "mariadb", "redis")
CONTENT = b"the right bytes"
SMALL = JarSet(
    "small",
    "Small Thing 1.0",
    1,
    (
        Jar("org.small", "thing", "1.0", "", hashlib.sha256(CONTENT).hexdigest()),
        Jar("org.small", "thing", "1.0", "linux", hashlib.sha256(CONTENT).hexdigest()),
    ),
)
FAKE_JAVA = """#!{python}
import pathlib, sys
if sys.argv[1] == "-version":
    sys.exit(print('openjdk version "17.0.1"'))
calls = pathlib.Path({calls!r})
with calls.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if {fails!r}:
    sys.exit(1)
folder = pathlib.Path(sys.argv[-1]).parent
folder.mkdir(parents=True)
for name in {names!r}:
    (folder / name).write_bytes({content!r})
"""


class Registry:
    """What the fake java should do, and the arguments it received."""

    def __init__(self, folder: Path) -> None:
        self._java = folder / "java" / "bin" / "java"
        self._java.parent.mkdir(parents=True)
        self._calls = folder / "calls"
        self.plays()

    def plays(self, *, fails: bool = False, content: bytes = CONTENT, names: tuple[str, ...] = ()) -> None:
        wanted = names or tuple(jar.file_name for jar in SMALL.jars)
        values = {"calls": str(self._calls), "fails": fails, "names": wanted, "content": content}
        self._java.write_text(FAKE_JAVA.format(python=sys.executable, **values))
        self._java.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("INORDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("INORDER_IVY_SETTINGS", raising=False)
    monkeypatch.setattr(jars, "jar_set", lambda _: SMALL)
    return Registry(tmp_path)


@pytest.mark.parametrize("name", SETS)
def test_every_jar_is_pinned_by_its_digest(name: str) -> None:
    wanted = jar_set(name)
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) for jar in wanted.jars)
    assert len({jar.file_name for jar in wanted.jars}) == len(wanted.jars)


def test_spark_needs_four_jars_beside_its_own() -> None:
    assert [jar.module for jar in jar_set("spark").jars] == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]


def test_pyspark_brings_ivy() -> None:
    assert ivy_jar().name.startswith("ivy-2.")


def test_jars_of_one_module_are_asked_for_together() -> None:
    text = SMALL.module_descriptor()
    assert text.count("<dependency ") == 1
    assert text.count("<artifact ") == 2
    assert 'transitive="false"' in text
    assert 'm:classifier="linux"' in text


def test_a_set_is_fetched_once_and_then_lies_in_the_cache(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = fetch("small"), fetch("small")
    assert first == second
    assert [path.read_bytes() for path in first] == [CONTENT, CONTENT]
    assert len(registry.calls) == 1
    assert capsys.readouterr().err == "fetching Small Thing 1.0 … 2 jars, 1 MB\n"


def test_the_cache_needs_no_java(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("small")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert len(spark_jars()) == 2


def test_two_at_once_fetch_once(registry: Registry) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(fetch, ["small"] * 4))
    assert all(result == results[0] for result in results)
    assert len(registry.calls) == 1


def test_no_network_is_one_sentence_with_exit_code_4_and_leaves_no_set(registry: Registry) -> None:
    registry.plays(fails=True)
    with pytest.raises(UnreachableError, match=r"Small Thing 1.0 could not be downloaded") as caught:
        fetch("small")
    assert caught.value.exit_code == 4
    assert "INORDER_IVY_SETTINGS" in caught.value.hint
    assert not SMALL.folder.exists()


def test_a_failed_download_can_be_tried_again(registry: Registry) -> None:
    registry.plays(fails=True)
    with pytest.raises(UnreachableError):
        fetch("small")
    registry.plays()
    assert all(path.is_file() for path in fetch("small"))


def test_a_missing_jar_is_a_failed_download(registry: Registry) -> None:
    registry.plays(names=(SMALL.jars[0].file_name,))
    with pytest.raises(UnreachableError, match="could not be downloaded"):
        fetch("small")
    assert not SMALL.folder.exists()


def test_other_bytes_than_the_pinned_ones_are_refused(registry: Registry) -> None:
    registry.plays(content=b"something else")
    with pytest.raises(UnreachableError, match=r"thing-1.0.jar of Small Thing 1.0 has the SHA-256"):
        fetch("small")
    assert not SMALL.folder.exists()


def test_the_users_ivy_settings_are_passed_on(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "mirror.xml"
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("INORDER_IVY_SETTINGS", str(settings))
    fetch("small")
    assert f"-settings {settings}" in registry.calls[0]


def test_ivy_settings_in_the_home_are_passed_on(registry: Registry, tmp_path: Path) -> None:
    settings = tmp_path / "home" / ".ivy2" / "ivysettings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text("<ivysettings/>")
    fetch("small")
    assert f"-settings {settings}" in registry.calls[0]


def test_ivy_settings_that_are_not_there_are_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_IVY_SETTINGS", "/nowhere.xml")
    with pytest.raises(UnreachableError, match=r"/nowhere.xml, which is not a file"):
        fetch("small")


def test_without_pyspark_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "find_spec", lambda _: None)
    with pytest.raises(UnreachableError, match=r"pip install 'inorder\[embedded\]'"):
        ivy_jar()
