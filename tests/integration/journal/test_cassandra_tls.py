"""Journals in a Cassandra that accepts TLS only, and only from clients with a certificate."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from inorder.embedded import Cassandra
from inorder.embedded.server import HOST
from inorder.journal.stores.cassandra import CassandraJournal
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.model.errors import InorderError
from inorder.model.journal import Key
from tests.contract.journal_store.replaying import Replicating

pytestmark = pytest.mark.full

_ENCRYPTION = """
client_encryption_options:
  enabled: true
  require_client_auth: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
    parameters:
      private_key: |
{key}
      trusted_certificates: |
{trusted}
"""


def _pkcs8(key: bytes) -> bytes:
    """The only format of keys that the node reads."""
    plain = serialization.NoEncryption()
    encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return serialization.load_pem_private_key(key, None).private_bytes(encoding, shape, plain)


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.strip().splitlines())


class SecuredCassandra(Cassandra):
    """A node with a certificate."""

    def configure(self) -> None:
        super().configure()
        authority = trustme.CA()
        server, client = authority.issue_cert(HOST), authority.issue_cert("client@example.org")
        chain = _pkcs8(server.private_key_pem.bytes()) + b"".join(each.bytes() for each in server.cert_chain_pems)
        authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        client.private_key_pem.write_to_path(str(self.folder / "client.key"))
        client.cert_chain_pems[0].write_to_path(str(self.folder / "client.pem"))
        trustme.CA().cert_pem.write_to_path(str(self.folder / "other.pem"))
        added = _ENCRYPTION.format(
            key=_indented(chain.decode()), trusted=_indented(authority.cert_pem.bytes().decode())
        )
        with (self.folder / "cassandra.yaml").open("a", encoding="utf-8") as settings:
            settings.write(added)

    def responds(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(self.folder / "client.pem", self.folder / "client.key")
        try:
            with (
                socket.create_connection((HOST, self.port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as connection,
            ):
                connection.sendall(bytes.fromhex("04 00 0000 05 00000000"))
                return connection.recv(64)[4:5] == b"\x06"
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Site:
    url: str
    folder: Path

    def with_options(self, **options: str) -> str:
        return f"{self.url}?{'&'.join(f'{name}={value}' for name, value in options.items())}"

    @property
    def client(self) -> dict[str, str]:
        certificate, key = self.folder / "client.pem", self.folder / "client.key"
        return {"tls": "true", "tls_certificate": str(certificate), "tls_key": str(key)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = SecuredCassandra(tmp_path_factory.mktemp("tls") / "cassandra", start_seconds=180)
    server.start()
    yield Site(f"{server.url}/journal", Path(server.folder))
    server.stop()


def test_journals_are_replicated_and_read_with_a_client_certificate_under_other_names(site: Site) -> None:
    names = {"journal_table": "events", "metajournal_table": "heads", "pointer_table": "places"}
    url = site.with_options(**site.client, tls_ca=str(site.folder / "ca.pem"), replicas="datacenter1:1", **names)
    with closing(CassandraJournal(url)) as store, closing(CassandraReplica(url)) as replica:
        store.install()
        assert store.install() == []
        journal = Replicating(replica, store, Key("id", "topic"), 2)
        journal.append(1, 2, 3)
        journal.delete(1)
        journal.flush()
        assert (journal.seen(), list(store.ids("topic"))) == ([2, 3], ["id"])
        keyspace = store._session.session.cluster.metadata.keyspaces["journal"]
        usual = {"setting", "locks", "snapshot", "quarantine", "clock", "journal_topic"}
        assert set(keyspace.tables) == {"events", "heads", "places", *usual}
        assert keyspace.replication_strategy.name == "NetworkTopologyStrategy"


@pytest.mark.parametrize("fault", ["without TLS", "wrong authority", "no client certificate"])
def test_who_is_not_trusted_or_does_not_trust_is_refused(site: Site, fault: str) -> None:
    options = {
        "without TLS": {"replicas": "1"},
        "wrong authority": {**site.client, "tls_ca": str(site.folder / "other.pem")},
        "no client certificate": {"tls": "true", "tls_ca": str(site.folder / "ca.pem")},
    }[fault]
    with closing(CassandraJournal(site.with_options(**options))) as store, pytest.raises(InorderError):
        store.offset("topic", 0)
