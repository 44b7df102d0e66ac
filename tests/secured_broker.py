"""Certificates for a broker that requires TLS and a password, and for its clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from inorder.embedded.kafka import BrokerSecurity


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a broker and one of its clients present, all signed by one authority."""

    broker: BrokerSecurity
    client_key: Path
    client_certificate: Path

    @property
    def client_properties(self) -> dict[str, str]:
        """For [kafka]: the certificate of the client."""
        return {"ssl.key.location": str(self.client_key), "ssl.certificate.location": str(self.client_certificate)}


def issue(folder: Path, *, client_certificates: bool = False) -> Certificates:
    """A user, a certificate for the loopback address and one for a client, and the authority that signed them."""
    authority = trustme.CA()
    made, client = authority.issue_cert("127.0.0.1", "localhost"), authority.issue_cert("client@example.org")
    (folder / "broker.pem").write_bytes(_pkcs8(made) + _chain(made))
    (folder / "client-key.pem").write_bytes(_pkcs8(client))
    (folder / "client.pem").write_bytes(_chain(client))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    security = BrokerSecurity(
        "relay", "geheim-richtig", folder / "broker.pem", folder / "ca.pem", client_certificates=client_certificates
    )
    return Certificates(security, folder / "client-key.pem", folder / "client.pem")


def _pkcs8(made: trustme.LeafCert) -> bytes:
    """Kafka wants its key as PKCS#8, whatever the library thinks best."""
    key = load_pem_private_key(made.private_key_pem.bytes(), password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _chain(made: trustme.LeafCert) -> bytes:
    return b"".join(each.bytes() for each in made.cert_chain_pems)
