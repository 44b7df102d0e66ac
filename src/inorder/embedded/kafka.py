"""Apache Kafka as one KRaft node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from inorder.embedded.class_archive import ClassArchive
from inorder.embedded.jars import fetch, jar_set
from inorder.embedded.java import find_java
from inorder.embedded.kafka_storage import copy_storage, keep_as_template, new_identity
from inorder.embedded.places import cache_folder
from inorder.embedded.ports import HOST, free_port
from inorder.embedded.server import Server


class Kafka(Server):
    """A broker and controller in one process; topics appear when first used."""

    name = "kafka"
    title = "Apache Kafka"
    _archive: ClassArchive | None = None

    def configure(self) -> None:
        """Write the settings for this start's ports."""
        template = Template(files("inorder.embedded").joinpath("kafka.properties").read_text("utf-8"))
        controller_port = free_port()
        settings = template.substitute(port=self.port, controller_port=controller_port, data=self.data)
        self._properties.write_text(settings + self.more_settings(controller_port), encoding="utf-8")

    def more_settings(self, controller_port: int) -> str:  # noqa: ARG002 - for those who listen elsewhere as well
        """Lines that go over the usual ones."""
        return ""

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def initialise(self) -> None:
        """Give it storage formatted for a cluster of its own."""
        template = cache_folder() / "storage" / jar_set("broker").folder.name
        if template.is_dir():
            copy_storage(template, self.data)
            return
        self.format_storage()
        keep_as_template(self.data, template)

    def format_storage(self, *options: str) -> None:
        """Has Kafka's own tool make the storage."""
        arguments = ["format", "--cluster-id", new_identity(), "--config", str(self._properties), *options]
        # One short run: the quick compiler is enough, and the simple collector starts faster.
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        self.run_tool([*self._java(*flags), "kafka.tools.StorageTool", *arguments])

    def _java(self, *flags: str) -> list[str]:
        jars = os.pathsep.join(str(path) for path in fetch("broker"))
        logging = files("inorder.embedded").joinpath("kafka-log4j2.yaml")
        return [str(find_java()), *flags, f"-Dlog4j2.configurationFile={logging}", "-cp", jars]

    def command(self) -> Sequence[str]:
        """The broker on the settings just written."""
        heap = (
            "-Xms256m",
            "-Xmx512m",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:+ExitOnOutOfMemoryError",
        )
        self._archive = ClassArchive.of(jar_set("broker"), find_java(), self.folder)
        return [*self._java(*heap, *self._archive.flags()), "kafka.Kafka", str(self._properties)]

    def after_orderly_stop(self) -> None:
        """Keep what makes the next start quick."""
        if self._archive:
            self._archive.collect()

    def responds(self) -> bool:
        """True when the broker lists its topics and is registered with its controller."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.inner_bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @property
    def bootstrap(self) -> str:
        """What `bootstrap.servers` wants."""
        return f"{HOST}:{self.port}"

    @property
    def inner_bootstrap(self) -> str:
        """Where the broker can be asked without a password."""
        return self.bootstrap

    @property
    def url(self) -> str:
        """The same as `bootstrap`: Kafka clients know no URLs."""
        return self.bootstrap
