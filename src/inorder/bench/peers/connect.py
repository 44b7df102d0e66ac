"""A standalone worker of Kafka Connect with one connector, for the peers that are one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path

from inorder.bench.place import BenchPlace
from inorder.embedded.java import find_java
from inorder.embedded.ports import HOST, free_port
from inorder.embedded.service import Program

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
_starts = count(1)


def connect_worker(place: BenchPlace, name: str, jars: Sequence[Path], connector: Mapping[str, str]) -> Program:
    """A fresh worker; not started yet."""
    folder = place.folder / f"{name}-{next(_starts)}"
    (folder / "plugins").mkdir(parents=True)
    paths = [
        _written(folder / "worker.properties", _worker(place, folder)),
        _written(folder / "connector.properties", connector),
    ]
    logging = folder / "log4j2.properties"
    logging.write_text(files("inorder.bench.peers").joinpath("connect-log4j2.properties").read_text("utf-8"), "utf-8")
    classes = os.pathsep.join(str(path) for path in jars)
    flags = ["-Xmx1g", f"-Dlog4j2.configurationFile={logging}", "-cp", classes]
    return Program(name, [str(find_java()), *flags, _MAIN, *map(str, paths)], place.folder)


def _worker(place: BenchPlace, folder: Path) -> dict[str, str]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": str(place.kafka["bootstrap.servers"]),
        "listeners": f"http://{HOST}:{free_port()}",
        "offset.storage.file.filename": str(folder / "offsets"),
        "key.converter": text,
        "value.converter": text,
        "plugin.discovery": "only_scan",
        "plugin.path": str(folder / "plugins"),
        "connector.client.config.override.policy": "All",
    }


def _written(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    return path
