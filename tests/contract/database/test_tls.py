"""TLS to PostgreSQL, MariaDB and Redis: verified, with a client certificate; another authority is refused."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from inorder.database import redis as redis_client
from inorder.database.credentials import parse_url
from inorder.database.database import open_database
from inorder.embedded import MariaDB, Postgres
from inorder.model.errors import AuthenticationError, ConfigurationError, InorderError


@dataclass(frozen=True, slots=True)
class Papers:
    """What a server and a client present, and an authority that signed neither."""

    authority: Path
    other_authority: Path
    server: Path
    client: Path


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates with their keys, each in one file."""
    folder, authority = tmp_path_factory.mktemp("papers"), trustme.CA()
    found = Papers(*(folder / f"{name}.pem" for name in ("ca", "other", "server", "client")))
    authority.cert_pem.write_to_path(str(found.authority))
    trustme.CA().cert_pem.write_to_path(str(found.other_authority))
    for file, names in ((found.server, ("127.0.0.1", "localhost")), (found.client, ("client@example.org",))):
        authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(file))
        file.chmod(0o600)
    return found


def _begin_postgres(client: socket.socket) -> None:
    """A client of PostgreSQL asks for TLS in eight bytes and waits for one."""
    assert client.recv(8, socket.MSG_WAITALL)[4:] == (80_877_103).to_bytes(4, "big")
    client.sendall(b"S")


class Terminator:
    """Speaks TLS to clients, requires their certificate, and passes the content on to a server of this machine."""

    def __init__(self, papers: Papers, port: int, begin: Callable[[socket.socket], None] = lambda _: None) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(papers.authority))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(papers.server)
        self._target = port
        self._begin = begin
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as opened, suppress(OSError):
            opened.enter_context(client)
            self._begin(client)
            inside = opened.enter_context(self._context.wrap_socket(client, server_side=True))
            outside = opened.enter_context(socket.create_connection(("127.0.0.1", self._target)))
            back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
            back.start()
            _copy(inside, outside)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65_536):
            sink.sendall(content)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def ask(url: str) -> object:
    with closing(open_database(url, "test")) as database:
        return database.execute("SELECT 1").rows


def refusal_of(url: str) -> InorderError:
    with pytest.raises(InorderError) as caught:
        ask(url)
    return caught.value


def test_postgresql_over_tls_with_verification_and_a_client_certificate(postgres: Postgres, papers: Papers) -> None:
    with closing(Terminator(papers, postgres.port, _begin_postgres)) as terminator:
        options = {"sslmode": "verify-full", "sslcert": str(papers.client), "sslkey": str(papers.client)}
        url = parse_url(postgres.url).set(port=terminator.port).update_query_dict(options)
        verified = url.update_query_dict({"sslrootcert": str(papers.authority)}).render_as_string(hide_password=False)
        assert ask(verified) == [(1,)]
        other = url.update_query_dict({"sslrootcert": str(papers.other_authority)})
        error = refusal_of(other.render_as_string(hide_password=False))
        assert type(error) is AuthenticationError
        assert "certificate verify failed" in error.message
    error = refusal_of(f"{postgres.url}?sslmod=verify-full")
    assert type(error) is ConfigurationError
    assert "sslmod" in error.message


class SecuredMariaDB(MariaDB):
    """A MariaDB that accepts connections over TLS only."""

    papers: Papers

    def command(self) -> Sequence[str]:
        given = [word for word in super().command() if word != "--skip-ssl"]
        files = {"ssl-ca": self.papers.authority, "ssl-cert": self.papers.server, "ssl-key": self.papers.server}
        return [*given, *(f"--{name}={file}" for name, file in files.items()), "--require-secure-transport=ON"]


@pytest.fixture
def secured_mariadb(tmp_path: Path, papers: Papers) -> Iterator[MariaDB]:
    """Its own server, since the session's has no TLS."""
    server = SecuredMariaDB(tmp_path, start_seconds=180)
    server.papers = papers
    with server:
        yield server


@pytest.mark.full
def test_mariadb_over_tls_with_verification_and_a_client_certificate(secured_mariadb: MariaDB, papers: Papers) -> None:
    client = f"ssl_cert={papers.client}&ssl_key={papers.client}"
    assert ask(f"{secured_mariadb.url}?ssl_ca={papers.authority}&{client}") == [(1,)]
    error = refusal_of(f"{secured_mariadb.url}?ssl_ca={papers.other_authority}&{client}")
    assert type(error) is AuthenticationError
    assert "CERTIFICATE_VERIFY_FAILED" in error.message


@pytest.mark.parametrize(("option", "named"), [("ssl_cafile=x", "ssl_cafile"), ("ssl_disabled=false", "ssl_disabled")])
def test_an_option_of_mariadb_that_is_not_known_is_refused(option: str, named: str) -> None:
    error = refusal_of(f"mysql+pymysql://root@127.0.0.1:1/shop?{option}")
    assert type(error) is ConfigurationError
    assert named in error.message


def test_redis_over_tls_with_verification_and_a_client_certificate(redis_url: str, papers: Papers) -> None:
    port = parse_url(redis_url).port
    assert port is not None
    client = f"ssl_certfile={papers.client}&ssl_keyfile={papers.client}"
    with closing(Terminator(papers, port)) as terminator:
        url = f"rediss://127.0.0.1:{terminator.port}/0?{client}"
        with closing(redis_client.connect(f"{url}&ssl_ca_certs={papers.authority}", 30)) as found:
            assert found.ping()
        other = redis_client.connect(f"{url}&ssl_ca_certs={papers.other_authority}", 30)
        refused = pytest.raises(AuthenticationError, match="CERTIFICATE_VERIFY_FAILED")
        with closing(other), refused, redis_client.redis_errors():
            other.ping()


def test_an_option_of_redis_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ssl_ca_cert"):
        redis_client.connect("rediss://127.0.0.1:1/0?ssl_ca_cert=/ca.pem")
