"""Options of a store in Cassandra: from the settings or the URL, the same ones, and none that is ignored."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT

from inorder.journal.stores.cassandra_session import CassandraSession, check_datacenters, statements, tls_context
from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.settings.journal import CassandraSettings, cassandra_options

URL = "cassandra://user:secret@host/keyspace"


def store_url(**journal: Any) -> str:
    settings = Settings.load(None, journal=journal)
    return settings.journal.store_url(settings.database)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("ssl=true", "unknown option ssl"),
        ("tls=true&Dc=here", "unknown option Dc"),
        ("replicas=0", "replicas"),
        ("replicas=dc1", "replicas"),
        ("replicas=dc1:3,", "replicas"),
        ("read_consistency=ANY", "read_consistency"),
        ("read_consistency=ONE", "read_consistency ONE may miss what write_consistency LOCAL_QUORUM"),
        ("read_consistency=QUORUM", "read_consistency QUORUM may miss"),
        ("write_consistency=QUORUM", "write_consistency QUORUM"),
        ("tls_ca=/ca.pem", "tls = true"),
        ("tls=true&tls_key=/key.pem", "tls_key needs tls_certificate"),
        ("journal_table=Events", "journal_table"),
        ("journal_table=metajournal", "2 tables are called metajournal"),
        ("pointer_table=pointer", "drops a table called pointer"),
        ("dc=here&local_dc=there", "local_dc is set twice"),
        ("journal_table=x;DROP", "journal_table"),
    ],
)
def test_an_option_that_is_unknown_or_cannot_hold_is_refused_by_name(query: str, named: str) -> None:
    for refusing in (lambda: CassandraSession(f"{URL}?{query}"), lambda: store_url(store=f"{URL}?{query}")):
        with pytest.raises(ConfigurationError) as refused:
            refusing()
        assert named in refused.value.message
        assert "secret" not in f"{refused.value}"


def test_one_in_the_url_and_in_the_section_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="local_dc is set twice"):
        store_url(store=f"{URL}?dc=here", cassandra={"local_dc": "here"})


@pytest.mark.parametrize("levels", [("ALL", "ONE"), ("LOCAL_ONE", "ALL"), ("QUORUM", "EACH_QUORUM")])
def test_levels_of_which_a_read_finds_every_write_are_taken(levels: tuple[str, str]) -> None:
    taken = cassandra_options(f"{URL}?read_consistency={levels[0]}&write_consistency={levels[1]}")
    assert (taken.read_consistency, taken.write_consistency) == levels


def test_the_section_says_what_the_url_says() -> None:
    section = {"local_dc": "here", "tls": True, "tls_check_hostname": False, "replicas": 3, "journal_table": "events"}
    query = "local_dc=here&tls=true&tls_check_hostname=false&replicas=3&journal_table=events"
    assert store_url(store=URL, cassandra=section) == f"{URL}?{query}" == store_url(store=f"{URL}?{query}")
    assert cassandra_options(f"{URL}?{query}") == CassandraSettings.model_validate(section)
    assert store_url(store=f"{URL}?dc=here", cassandra={"replicas": "dc1:3"}) == f"{URL}?dc=here&replicas=dc1%3A3"


def test_a_store_elsewhere_does_not_get_them() -> None:
    other = "postgresql+psycopg://host/db"
    assert store_url(store=other, cassandra={"tls": True}) == other


def test_without_options_all_is_as_it_was() -> None:
    session = CassandraSession("cassandra://127.0.0.1/mine")
    made = statements(session)
    assert "{'class': 'SimpleStrategy', 'replication_factor': 1}" in made[0]
    assert any('CREATE TABLE IF NOT EXISTS "mine".metajournal (' in each for each in made)
    profile = session._new_cluster().profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    levels = profile.consistency_level, profile.serial_consistency_level
    assert levels == (ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL)


def test_tables_have_their_names_in_every_statement_and_the_keyspace_its_strategy() -> None:
    names = {f"{name}_table": f"my_{name}" for name in ("journal", "metajournal", "pointer", "setting", "locks")}
    names |= {f"{name}_table": f"my_{name}" for name in ("snapshot", "quarantine")}
    query = "&".join(f"{name}={value}" for name, value in names.items())
    session = CassandraSession(f"cassandra://127.0.0.1/mine?replicas=dc1:3,dc-2:2&{query}")
    made = statements(session)
    assert "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc-2': 2}" in made[0]
    assert '"my_metajournal_expire_on" ON "mine"."my_metajournal"' in "\n".join(made)
    for name in (
        "head",
        "events",
        "move_offset",
        "insert_quarantined",
        "save_snapshot",
        "lock",
        "setting",
        "migrate_0",
    ):
        assert '"mine"."my_' in session.rendered(name)


def test_the_levels_of_the_options_are_those_of_the_statements() -> None:
    url = "cassandra://127.0.0.1/mine?read_consistency=ONE&write_consistency=ALL&serial_consistency=SERIAL&dc=here"
    session = CassandraSession(url)
    profile = session._new_cluster().profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    assert (profile.consistency_level, profile.serial_consistency_level) == (
        ConsistencyLevel.ALL,
        ConsistencyLevel.SERIAL,
    )
    assert profile.load_balancing_policy._child_policy.local_dc == "here"

    class Preparing:
        def prepare(self, statement: str) -> Any:
            return type("Prepared", (), {"statement": statement, "consistency_level": None})()

    session._session = Preparing()
    prepared = [session.prepared(name) for name in ("head", "insert_event", "move_offset")]
    prepared.append(session.prepared("offset", serial=True))
    found = [each.consistency_level for each in prepared]
    assert found == [ConsistencyLevel.ONE, None, None, ConsistencyLevel.SERIAL]


@pytest.mark.parametrize(
    ("query", "found", "is_refused"),
    [
        ("", {"one"}, False),
        ("", {"one", "two"}, True),
        ("dc=one", {"one", "two"}, False),
        ("read_consistency=QUORUM&write_consistency=QUORUM", {"one", "two"}, True),
        ("read_consistency=QUORUM&write_consistency=QUORUM&serial_consistency=SERIAL", {"one", "two"}, False),
    ],
)
def test_a_local_level_among_several_data_centres_needs_to_know_which(
    query: str, found: set[str | None], is_refused: bool
) -> None:
    options = cassandra_options(f"{URL}?{query}")
    if not is_refused:
        check_datacenters(options, found)
        return
    with pytest.raises(ConfigurationError, match=r"one, two.*local_dc"):
        check_datacenters(options, found)


def test_certificates_are_verified_unless_only_the_host_name_is_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    url = f"{URL}?tls=true&tls_ca={tmp_path / 'ca.pem'}"
    context = tls_context(cassandra_options(url))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    context = tls_context(cassandra_options(f"{url}&tls_check_hostname=false"))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    with pytest.raises(ConfigurationError, match="certificates"):
        tls_context(cassandra_options(f"{url}&tls_certificate={tmp_path / 'missing.pem'}"))
