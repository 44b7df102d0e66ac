"""A worker's result arrives complete, and its failure with its last log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from inorder.bench import roles, worker
from inorder.bench.peers.choice import PEERS, PIPELINE_PEERS
from inorder.bench.worker import Worker
from inorder.cli.bench import PipelinePeer, RelayPeer
from inorder.model.errors import PermanentError

Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers and ends those that a test leaves."""
    started: list[Worker] = []

    def start_worker(role: str, **task: Any) -> Worker:
        started.append(Worker(role, task, tmp_path))
        started[-1].start()
        return started[-1]

    yield start_worker
    for each in started:
        each.stop()


def test_a_task_is_done_and_its_result_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "ROLES", {"double": lambda number: {"doubled": 2 * number}})
    task, result = tmp_path / "task", tmp_path / "result"
    task.write_bytes(orjson.dumps({"role": "double", "number": 21}))
    worker.main(task, result)
    assert orjson.loads(result.read_bytes()) == {"doubled": 42}
    assert {file.name for file in tmp_path.iterdir()} == {"task", "result"}


def test_a_worker_that_fails_is_told_with_its_last_words(start: Start) -> None:
    with pytest.raises(PermanentError, match=r"(?s)no-such-role-.* ended by itself.*KeyError: 'no-such-role'"):
        start("no-such-role").result(within=30)


def test_workers_of_one_role_do_not_share_files(tmp_path: Path) -> None:
    Worker("send-all", {}, tmp_path)
    Worker("send-all", {}, tmp_path)
    assert len(list(tmp_path.glob("send-all-*.task.json"))) == 2


def test_every_peer_of_the_command_line_can_be_measured() -> None:
    assert {peer.value for peer in RelayPeer} == set(PEERS)
    assert {peer.value for peer in PipelinePeer} == set(PIPELINE_PEERS)
