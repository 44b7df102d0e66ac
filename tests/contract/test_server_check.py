"""What servers say of themselves is read, and a cluster is refused before anything is published."""

from __future__ import annotations

from contextlib import closing

import pytest

from inorder.database.database import open_database
from inorder.model.errors import ConfigurationError
from inorder.operate.doctor import examine_database
from inorder.relay.stores import server
from inorder.relay.stores.server import Facts, ServerCheck, read_facts
from inorder.settings import Settings

GALERA: Facts = {"version": "11.4.5-MariaDB", "wsrep_on": "ON"}


@pytest.fixture(params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def test_the_version_is_among_the_facts(url: str) -> None:
    with closing(open_database(url, "test")) as database, database.transaction() as transaction:
        facts = read_facts(transaction, database.dialect)
    assert facts["version"]
    assert (database.dialect == "mysql") == ("auto_increment_increment" in facts)


def test_an_ordinary_server_is_accepted_by_relay_and_doctor(url: str) -> None:
    ServerCheck(url, single_writer_node=False)()
    kinds = [check for check in examine_database(Settings.load(database={"url": url})) if check.name == "database kind"]
    assert [check.status for check in kinds] == ["ok"]


def test_a_cluster_is_refused_by_relay_and_doctor_unless_one_node_is_used(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Imported before anything is replaced: it would import what is replaced, and keep it.
    monkeypatch.setattr("inorder.operate.doctor_databases.read_facts", lambda *_: GALERA)
    monkeypatch.setattr(server, "read_facts", lambda *_: GALERA)
    with pytest.raises(ConfigurationError, match="Galera"):
        ServerCheck(mariadb_url, single_writer_node=False)()
    ServerCheck(mariadb_url, single_writer_node=True)()
    for accepted, status in ((False, "fail"), (True, "warn")):
        settings = Settings.load(database={"url": mariadb_url, "single_writer_node": accepted})
        [kind] = [check for check in examine_database(settings) if check.name == "database kind"]
        assert (kind.status, "Galera" in kind.detail) == (status, True)
