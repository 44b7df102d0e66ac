"""A server that ends is started again and mentioned; one that keeps ending is an error."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from inorder.embedded import stack as stacks
from inorder.embedded.redis import Redis
from inorder.embedded.server import Server, free_port
from inorder.embedded.stack import MOST_RESTARTS, supervise
from inorder.model.errors import UnreachableError


class Ending:
    """A server that ends some times."""

    name, title, log_path = "kafka", "Kafka", Path("kafka.log")

    def __init__(self, times: int, stop: threading.Event) -> None:
        self.left = times
        self.revived = 0
        self.stop = stop

    @property
    def has_ended(self) -> bool:
        if self.left == 0:
            self.stop.set()
        return self.left > 0

    def revive(self) -> None:
        self.left -= 1
        self.revived += 1

    def failure(self, what: str) -> UnreachableError:
        return UnreachableError(f"{self.title} {what}.")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two looks."""
    monkeypatch.setattr(stacks, "_LOOK_SECONDS", 0)


def test_a_server_that_ended_is_started_again_and_mentioned() -> None:
    stop, said = threading.Event(), list[str]()
    server = Ending(2, stop)
    supervise([cast("Server", server)], stop, said.append)
    assert server.revived == 2
    assert said[0] == "Kafka ended by itself and is started again; its log is kafka.log."
    assert said.count("Kafka runs again.") == 2


def test_a_server_that_keeps_ending_is_an_error() -> None:
    server = Ending(MOST_RESTARTS + 1, threading.Event())
    with pytest.raises(UnreachableError, match=f"Kafka ended {MOST_RESTARTS + 1} times"):
        supervise([cast("Server", server)], threading.Event(), lambda _: None)
    assert server.revived == MOST_RESTARTS


def test_a_folder_keeps_its_port_while_it_is_free(tmp_path: Path) -> None:
    (tmp_path / "port").write_text(str(port := free_port()))
    server = Redis(tmp_path)
    server._choose_port()
    assert server.port == port
    for invalid in ("nonsense", "99999999", "80", ""):
        (tmp_path / "port").write_text(invalid)
        other = Redis(tmp_path)
        other._choose_port()
        assert other.port != 80
