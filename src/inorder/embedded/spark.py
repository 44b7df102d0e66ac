"""`SparkCluster`: a standalone master with workers on loopback, to try jobs on separate executors.

Work folders and logs are in its folder, and the processes end with this one. The master accepts every application that
reaches it, so it listens on loopback only.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from inorder.embedded.jars import find_java
from inorder.embedded.server import HOST, free_port
from inorder.embedded.stack import Program
from inorder.model.errors import ConfigurationError, UnreachableError

START_SECONDS = 240.0
_LOOK_SECONDS = 0.1
_DEPLOY = "org.apache.spark.deploy"
_DECOMMISSIONS = "-Dspark.decommission.enabled=true"
_REGISTERED = re.compile(r"Registering worker ")


class SparkCluster:
    """A context manager; each worker has `cores` slots and `memory` for executors."""

    def __init__(
        self, folder: Path, workers: int, *, cores: int = 1, memory: str = "1g", port: int | None = None
    ) -> None:
        self._folder = folder
        self._port = port
        self._size = cores, memory
        self._count = workers
        self.workers: list[Program] = []
        self.master: Program | None = None
        self.url = ""
        """Of the master, once it is started."""

    def start(self) -> Self:
        """Starts the master and the workers, and waits until all are registered; stops them where one cannot start."""
        find_java()
        home = _installation(self._folder)
        port = self._port or free_port()
        self.url = f"spark://{HOST}:{port}"
        self.master = self._program(home, "master", "master.Master", "--port", str(port))
        try:
            self.master.start()
            for _ in range(self._count):
                self.add_worker()
            self._wait_for(lambda: self.registered() >= self._count)
        except BaseException:
            self.stop()
            raise
        return self

    def add_worker(self) -> Program:
        """Starts one more worker; returns at once."""
        cores, memory = self._size
        name = f"worker-{len(self.workers) + 1}"
        more = ["-c", str(cores), "-m", memory, "-d", str(self._folder / name), self.url]
        worker = self._program(self._folder / "spark", name, "worker.Worker", *more)
        worker.start()
        self.workers.append(worker)
        return worker

    def decommission(self, worker: Program) -> None:
        """Lets a worker end when the tasks of its executors have ended, and gives it no new ones."""
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGPWR)

    def registered(self) -> int:
        """How many workers have registered so far; those that were lost count too."""
        if self.master is None or not self.master.log_path.exists():
            return 0
        return len(_REGISTERED.findall(self.master.log_path.read_text(errors="replace")))

    def stop(self) -> None:
        """Stops the workers, then the master; may be called twice."""
        for worker in self.workers:
            worker.stop()
        if self.master is not None:
            self.master.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _program(self, home: Path, name: str, role: str, *arguments: str) -> Program:
        ui = ["--webui-port", "0", "--host", HOST]
        variables = [f"SPARK_HOME={home}", f"PYSPARK_PYTHON={sys.executable}", f"SPARK_WORKER_OPTS={_DECOMMISSIONS}"]
        run = ["/usr/bin/env", *variables, str(home / "bin/spark-class")]
        return Program(name, [*run, f"{_DEPLOY}.{role}", *ui, *arguments], self._folder)

    def _wait_for(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_reached():
            for program in (*self.workers, self.master):
                if program is not None:
                    program.check()
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"The workers of Spark did not register within {START_SECONDS:g} s.",
                    hint=f"The logs are in {self._folder}.",
                )
            time.sleep(_LOOK_SECONDS)


def _installation(folder: Path) -> Path:
    """The installed Spark by links in a folder of ours: a cluster writes beside its jars."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("PySpark is not installed.", hint="pip install 'inorder[spark]'")
    home = folder / "spark"
    home.mkdir(parents=True, exist_ok=True)
    for entry in Path(spec.origin).parent.iterdir():
        if entry.name != "work" and not (home / entry.name).is_symlink():
            (home / entry.name).symlink_to(entry)
    return home
