"""Work in a process of its own: the task goes in as a file, the result comes out as one.

Writers, senders and peers must not share an interpreter with the process that measures them.
`python -m inorder.bench.worker TASK RESULT` is the other end.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from inorder.embedded.stack import Service
from inorder.model.errors import TransientError

_numbers = count(1)


class Worker(Service):
    """One running task; its output goes to a log beside its task file."""

    def __init__(self, role: str, task: dict[str, Any], folder: Path) -> None:
        name = f"{role}-{next(_numbers)}"
        described = folder / f"{name}.task.json"
        described.write_bytes(orjson.dumps({"role": role, **task}))
        self._result = folder / f"{name}.result.json"
        super().__init__(name, [str(described), str(self._result)], folder, module="inorder.bench.worker")

    def result(self, within: float) -> dict[str, Any]:
        """Waits until the task is done, at most so many seconds."""
        if not self.has_ended(within):
            raise TransientError(
                f"The worker {self.name} was not done within {within:.0f} s.",
                hint=f"Its log is {self.log_path}. Fewer --rows take less time.",
            )
        if not self._result.exists():
            raise self.early_end()
        result: dict[str, Any] = orjson.loads(self._result.read_bytes())
        return result


def main(task_path: Path, result_path: Path) -> None:
    """Runs the task of a file and writes its result, by renaming: a result that exists is whole."""
    from inorder.bench.roles import ROLES

    task = orjson.loads(task_path.read_bytes())
    result = ROLES[task.pop("role")](**task)
    unfinished = result_path.with_suffix(".part")
    unfinished.write_bytes(orjson.dumps(result))
    unfinished.rename(result_path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
