"""A broker that lets nobody in without TLS and a password: SASL_SSL with SCRAM-SHA-512."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from inorder.embedded.kafka import Kafka
from inorder.embedded.ports import HOST, free_port

MECHANISM = "SCRAM-SHA-512"
_LISTENER = "SECURED"


@dataclass(frozen=True, slots=True)
class Entrance:
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

    def __init__(self, folder: Path | str, entrance: Entrance) -> None:
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
