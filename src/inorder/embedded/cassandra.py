"""Apache Cassandra 5.0 as a cluster of one node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from inorder.embedded.jars import fetch, find_java
from inorder.embedded.server import HOST, Server, ask, free_port

# Frames of the native protocol, version 4: version, flags, stream, opcode, length of the body.
_OPTIONS = bytes.fromhex("04 00 0000 05 00000000")
_SUPPORTED = b"\x06"


class Cassandra(Server):
    name = "cassandra"
    title = "Apache Cassandra"
    disk_megabytes = 500

    def configure(self) -> None:
        template = Template(_resource("cassandra.yaml"))
        settings = template.substitute(port=self.port, storage_port=free_port(), data=self.folder / "data")
        (self.folder / "cassandra.yaml").write_text(settings, encoding="utf-8")
        (self.folder / "logback.xml").write_text(_resource("cassandra-logback.xml"), encoding="utf-8")

    def command(self) -> Sequence[str]:
        flags = [line for line in _resource("cassandra-jvm.options").splitlines() if line.startswith("-")]
        places = [
            f"-Dcassandra.config=file://{self.folder}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.folder}/data",
            f"-Dlogback.configurationFile={self.folder}/logback.xml",
        ]
        jars = os.pathsep.join(str(path) for path in fetch("cassandra"))
        return [
            str(find_java()),
            *flags,
            *places,
            "-cp",
            jars,
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def responds(self) -> bool:
        """Whether it lists its protocol versions; it does not listen before it can serve."""
        return ask(self.port, _OPTIONS)[4:5] == _SUPPORTED

    @property
    def url(self) -> str:
        """A value for `[journal] store`, without the keyspace."""
        return f"cassandra://{HOST}:{self.port}"


def _resource(name: str) -> str:
    return files("inorder.embedded").joinpath(name).read_text("utf-8")
