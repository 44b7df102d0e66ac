"""Apache Kafka as one KRaft node."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template

from inorder.embedded.folders import cache_folder
from inorder.embedded.jars import ClassArchive, fetch, find_java, jar_set
from inorder.embedded.process import HOST, free_port
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


# The storage of a KRaft node: formatted once by Kafka's own tool, then copied with new identities.

_IDENTITIES = re.compile(r"^(cluster\.id|directory\.id)=.*$", re.MULTILINE)


def new_identity() -> str:
    """A random id in Kafka's spelling, which must not begin with a dash."""
    while (identity := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return identity


def copy_storage(template: Path, data: Path) -> None:
    """Fill the empty folder `data` as formatting would, for a cluster of its own."""
    shutil.copytree(template, data, dirs_exist_ok=True)
    meta = data / "meta.properties"
    text = _IDENTITIES.sub(lambda match: f"{match[1]}={new_identity()}", meta.read_text("utf-8"))
    meta.write_text(text, encoding="utf-8")


def keep_as_template(data: Path, template: Path) -> None:
    """Keep freshly formatted storage for the next node; whoever is first wins, for all are alike."""
    template.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=template.parent))
    shutil.copytree(data, fresh, dirs_exist_ok=True)
    try:
        fresh.rename(template)
    except OSError:
        shutil.rmtree(fresh)


# A broker that lets nobody in without TLS and a password: SASL_SSL with SCRAM-SHA-512.

MECHANISM = "SCRAM-SHA-512"
_LISTENER = "SECURED"


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """What a broker asks of its callers and shows to them."""

    user: str
    password: str = field(repr=False)
    certificate: Path
    """PEM: its private key, unencrypted PKCS#8, and the certificates that belong to it."""
    authority: Path
    """PEM: the certificate that signed it, for the callers."""


class SecuredKafka(Kafka):
    """`bootstrap` is the guarded door; a second one without a guard, on the loopback too, is for the broker itself."""

    title = "Apache Kafka with SASL_SSL"

    def __init__(self, folder: Path | str, entrance: BrokerSecurity) -> None:
        super().__init__(folder)
        self._entrance = entrance
        self._inner_port: int | None = None

    def more_settings(self, controller_port: int) -> str:
        """Listens twice, and guards one of them."""
        if self._inner_port is None:
            self._inner_port = free_port()
        inner, outer = f"PLAINTEXT://{self.inner_bootstrap}", f"{_LISTENER}://{self.bootstrap}"
        guarded = f"listener.name.{_LISTENER.lower()}"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        lines = {
            "listeners": f"{outer},{inner},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"{outer},{inner}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{_LISTENER}:SASL_SSL",
            f"{guarded}.sasl.enabled.mechanisms": MECHANISM,
            f"{guarded}.{MECHANISM.lower()}.sasl.jaas.config": login,
            f"{guarded}.ssl.keystore.type": "PEM",
            f"{guarded}.ssl.keystore.location": str(self._entrance.certificate),
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def initialise(self) -> None:
        """Formats its own storage, because the user is part of it."""
        entrance = self._entrance
        self.format_storage("--add-scram", f"{MECHANISM}=[name={entrance.user},password={entrance.password}]")

    @property
    def inner_bootstrap(self) -> str:
        """Where the broker can be asked without a password."""
        return f"{HOST}:{self._inner_port}"

    @property
    def client_properties(self) -> dict[str, str]:
        """What [kafka] needs to get in."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self._entrance.user,
            "sasl.password": self._entrance.password,
            "ssl.ca.location": str(self._entrance.authority),
        }
