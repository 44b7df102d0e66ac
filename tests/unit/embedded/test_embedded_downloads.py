"""One command downloads everything, or says in a sentence why it cannot."""

from __future__ import annotations

import pytest

from inorder.embedded import __main__ as downloads
from inorder.embedded.jars import jar_sets
from inorder.model.errors import UnreachableError


def test_every_set_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(downloads, "fetch", fetched.append)
    assert downloads.main() == 0
    assert fetched == list(jar_sets())
    assert {"broker", "spark", "cassandra", "mariadb", "redis"} <= set(fetched)


def test_without_a_network_it_is_a_sentence_and_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise UnreachableError(f"{name} could not be downloaded.", hint="Check the network.")

    monkeypatch.setattr(downloads, "fetch", fail)
    assert downloads.main() == 4
    assert capsys.readouterr().err == "error TRANSIENT-002: broker could not be downloaded. Check the network.\n"
