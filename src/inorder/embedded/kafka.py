"""Apache Kafka as one KRaft node: open, with a password (SASL/PLAIN on the loopback address), or with SASL_SSL.

Kafka's own tool formats the storage of a node once; later nodes get a copy with new ids, which is faster.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template

from inorder.embedded.folders import cache_folder
from inorder.embedded.jars import ClassArchive, fetch, find_java, jar_set
from inorder.embedded.server import HOST, Server, free_port, write_private

_USER = "inorder"


class Kafka(Server):
    """A broker and controller in one process; topics are created when first used."""

    name = "kafka"
    title = "Apache Kafka"
    _archive: ClassArchive | None = None

    def configure(self) -> None:
        template = Template(files("inorder.embedded").joinpath("kafka.properties").read_text("utf-8"))
        controller_port = free_port()
        settings = template.substitute(port=self.port, controller_port=controller_port, data=self.data)
        write_private(self._properties, settings + self.more_settings(controller_port))

    def more_settings(self, controller_port: int) -> str:
        """Properties that override the usual ones: those of the password."""
        return "" if self.password is None else self._login_settings(self.password, controller_port)

    def _login_settings(self, password: str, controller_port: int) -> str:
        """The password on both listeners: a client of the controller's can change topics as well."""
        client = f'username="{_USER}" password="{password}"'
        module = f'org.apache.kafka.common.security.plain.PlainLoginModule required {client} user_{_USER}="{password}";'
        lines = {
            "listeners": f"LOGIN://{self.bootstrap},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"LOGIN://{self.bootstrap}",
            "inter.broker.listener.name": "LOGIN",
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": module,
            "listener.name.controller.plain.sasl.jaas.config": module,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def initialise(self) -> None:
        """Fills the storage for a new cluster."""
        template = cache_folder() / "storage" / jar_set("broker").folder.name
        if template.is_dir():
            copy_storage(template, self.data)
            return
        self.format_storage()
        keep_as_template(self.data, template)

    def format_storage(self, *options: str) -> None:
        """Formats the storage with Kafka's own tool."""
        arguments = ["format", "--cluster-id", new_identity(), "--config", str(self._properties), *options]
        # A short run: the first compiler tier is enough, and the serial collector starts faster.
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        self.run_tool([*self._java(*flags), "kafka.tools.StorageTool", *arguments])

    def _java(self, *flags: str) -> list[str]:
        jars = os.pathsep.join(str(path) for path in fetch("broker"))
        logging = files("inorder.embedded").joinpath("kafka-log4j2.yaml")
        return [str(find_java()), *flags, f"-Dlog4j2.configurationFile={logging}", "-cp", jars]

    def command(self) -> Sequence[str]:
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
        """Keeps the class archive, which makes the next start faster."""
        if self._archive:
            self._archive.collect()

    def responds(self) -> bool:
        """Whether the broker lists its topics and is registered with its controller."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({**self.inner_properties, "log_level": 0, "socket.timeout.ms": 2000})
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @property
    def bootstrap(self) -> str:
        """A value for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def client_properties(self) -> dict[str, str]:
        """Values for [kafka], with the login."""
        password = self.password
        if password is None:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": password,
        }

    @property
    def inner_properties(self) -> dict[str, str]:
        """With which this process asks whether it is ready."""
        return self.client_properties

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        return {"kafka": self.client_properties}

    @property
    def url(self) -> str:
        """The same as `bootstrap`: Kafka has no URLs."""
        return self.bootstrap


_IDENTITIES = re.compile(r"^(cluster\.id|directory\.id)=.*$", re.MULTILINE)


def new_identity() -> str:
    """A random id in Kafka's format, which must not begin with a dash."""
    while (identity := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return identity


def copy_storage(template: Path, data: Path) -> None:
    """Fills the empty folder `data` as formatting would, for a new cluster."""
    shutil.copytree(template, data, dirs_exist_ok=True)
    meta = data / "meta.properties"
    text = _IDENTITIES.sub(lambda match: f"{match[1]}={new_identity()}", meta.read_text("utf-8"))
    meta.write_text(text, encoding="utf-8")


def keep_as_template(data: Path, template: Path) -> None:
    """Keeps newly formatted storage for the next node; the first process wins, as all copies are equal."""
    template.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=template.parent))
    shutil.copytree(data, fresh, dirs_exist_ok=True)
    try:
        fresh.rename(template)
    except OSError:
        shutil.rmtree(fresh)


MECHANISM = "SCRAM-SHA-512"
_LISTENER = "SECURED"


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """The login that a broker requires, and the certificate it presents."""

    user: str
    password: str = field(repr=False)
    certificate: Path
    """PEM: the private key, unencrypted PKCS#8, and its certificates."""
    authority: Path
    """PEM: the certificate authority, for clients."""
    client_certificates: bool = False
    """Whether clients must present a certificate of that authority too."""


class SecuredKafka(Kafka):
    """A broker that requires TLS and a password: SASL_SSL with SCRAM-SHA-512.

    `bootstrap` is the secured listener; a second one without security, also on the loopback, is for the broker."""

    title = "Apache Kafka with SASL_SSL"

    def __init__(self, folder: Path | str, security: BrokerSecurity) -> None:
        super().__init__(folder)
        self._security = security
        self._inner_port: int | None = None

    def more_settings(self, controller_port: int) -> str:
        """Two listeners, one of them secured."""
        if self._inner_port is None:
            self._inner_port = free_port()
        inner, outer = f"PLAINTEXT://{self.inner_bootstrap}", f"{_LISTENER}://{self.bootstrap}"
        secured = f"listener.name.{_LISTENER.lower()}"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        lines = {
            "listeners": f"{outer},{inner},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"{outer},{inner}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{_LISTENER}:SASL_SSL",
            f"{secured}.sasl.enabled.mechanisms": MECHANISM,
            f"{secured}.{MECHANISM.lower()}.sasl.jaas.config": login,
            f"{secured}.ssl.keystore.type": "PEM",
            f"{secured}.ssl.keystore.location": str(self._security.certificate),
        }
        if self._security.client_certificates:
            lines |= {
                f"{secured}.ssl.client.auth": "required",
                f"{secured}.ssl.truststore.type": "PEM",
                f"{secured}.ssl.truststore.location": str(self._security.authority),
            }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def initialise(self) -> None:
        """Formats its own storage, because it holds the user."""
        security = self._security
        self.format_storage("--add-scram", f"{MECHANISM}=[name={security.user},password={security.password}]")

    @property
    def inner_bootstrap(self) -> str:
        """An address that needs no password."""
        return f"{HOST}:{self._inner_port}"

    @property
    def inner_properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.inner_bootstrap}

    @property
    def client_properties(self) -> dict[str, str]:
        """Values for [kafka] to log in."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self._security.user,
            "sasl.password": self._security.password,
            "ssl.ca.location": str(self._security.authority),
        }
