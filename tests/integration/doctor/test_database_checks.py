"""What the doctor finds in the outbox tables of real servers."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from inorder.database.database import open_database
from inorder.operate.doctor import Check, examine_database
from inorder.relay.stores.ports import Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.settings import Settings
from tests.operating import install_schema
from tests.unit.cli.test_doctor_checks import EACH_LAYOUT, failed, require_well


@pytest.fixture(params=["postgres_url", "mariadb_url"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each server."""
    found: str = request.getfixturevalue(request.param)
    return found


def run(url: str, *statements: str) -> None:
    """Runs statements in the database."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def install(url: str, layout: str = "native") -> None:
    """Makes the tables of a layout, as a user would."""
    install_schema(Settings.load(database={"url": url}), layout)


def examined(url: str, **relay: object) -> dict[str, Check]:
    """The findings by name."""
    return {check.name: check for check in examine_database(Settings.load(database={"url": url}, relay=relay))}


@pytest.mark.full
@EACH_LAYOUT
def test_a_fresh_table_of_each_layout_is_well(url: str, layout: str, strategy: str) -> None:
    install(url, layout)
    require_well(examined(url, layout=layout, strategy=strategy), layout)


def test_an_empty_database_gets_the_command_that_makes_the_table(url: str) -> None:
    found = examined(url, layout="debezium")
    assert failed(found) == ["outbox table"]
    assert found["outbox table"].hint == "Run `inorder schema install --layout debezium`."


def test_a_table_of_debezium_s_own_lacks_the_number_and_the_remedy_adds_it(url: str) -> None:
    install(url, "debezium")
    run(url, "ALTER TABLE outbox DROP COLUMN seq")
    found = examined(url, layout="debezium")["outbox table"]
    assert found.detail == "outbox lacks seq of the layout debezium"
    assert "`inorder schema install --layout debezium`" in found.hint
    install(url, "debezium")
    assert failed(examined(url, layout="debezium")) == []


def test_a_table_made_before_there_were_marks_gets_its_column(url: str) -> None:
    install(url)
    run(url, "ALTER TABLE outbox DROP COLUMN leader_id")
    assert failed(examined(url)) == []
    assert examined(url, strategy="mark-purge")["outbox table"].hint == (
        "Run `inorder schema install --layout native`: it adds the column."
    )
    install(url)
    assert failed(examined(url, strategy="mark-purge")) == []


def test_what_is_registered_is_compared(url: str) -> None:
    install(url)
    with closing(SqlRegistry(open_database(url, "test"), "outbox")) as registry:
        registry.register(Setup("orders", "mark-purge", 4))
    assert failed(examined(url, strategy="mark-purge", shards=4)) == []
    found = examined(url, shards=4)["registration"]
    assert "relay.strategy = 'drain', but 'mark-purge' is registered" in found.detail
    assert "inorder relay reshard" in found.hint


def test_a_sequence_of_goharvest_s_table_that_caches_ids_is_found(postgres_url: str) -> None:
    install(postgres_url, "goharvest")
    assert examined(postgres_url, layout="goharvest")["outbox ids"].detail == "sequence with CACHE 1"
    run(postgres_url, "ALTER SEQUENCE outbox_id_seq CACHE 20")
    found = examined(postgres_url, layout="goharvest")
    assert failed(found) == ["outbox ids"]
    assert found["outbox ids"].hint.startswith("Run ALTER SEQUENCE outbox_id_seq CACHE 1;")
    run(postgres_url, "ALTER TABLE outbox ALTER COLUMN id DROP DEFAULT", "DROP SEQUENCE outbox_id_seq")
    assert failed(examined(postgres_url, layout="goharvest")) == ["outbox ids"]


def test_the_number_of_debezium_s_table_needs_its_index(postgres_url: str) -> None:
    install(postgres_url, "debezium")
    run(postgres_url, "ALTER TABLE outbox DROP CONSTRAINT outbox_seq_key")
    found = examined(postgres_url, layout="debezium")
    assert failed(found) == ["outbox index"]
    assert "ADD UNIQUE (seq)" in found["outbox index"].hint


def test_an_index_that_leaves_rows_out_does_not_count(postgres_url: str) -> None:
    install(postgres_url)
    run(
        postgres_url,
        "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey",
        "CREATE UNIQUE INDEX partial ON outbox (id) WHERE id > 0",
        "CREATE UNIQUE INDEX wide ON outbox (id, topic)",
    )
    assert failed(examined(postgres_url)) == ["outbox index"]


def test_rights_in_postgres_are_named_with_the_grant(postgres_url: str, unique: str) -> None:
    install(postgres_url)
    role = f"{unique}_marks"
    granted = f"GRANT SELECT, INSERT, DELETE, UPDATE ON outbox TO {role}"
    readable = f"GRANT SELECT ON inorder_relay TO {role}"
    run(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'geheim'", granted, readable)
    url = make_url(postgres_url).set(username=role, password="geheim").render_as_string(hide_password=False)
    try:
        assert failed(examined(url)) == [], "what is there need not be made"
        run(postgres_url, "DROP TABLE inorder_lease")
        found = examined(url)
        assert failed(found) == ["relay tables"]
        assert f"GRANT CREATE ON SCHEMA public TO {role}." in found["relay tables"].hint
        run(postgres_url, f"GRANT CREATE ON SCHEMA public TO {role}")
        assert failed(examined(url)) == []
        run(postgres_url, f"REVOKE UPDATE ON outbox FROM {role}")
        for strategy in ("drain", "mark-purge"):
            found = examined(url, strategy=strategy)
            assert failed(found) == ["outbox rights"]
            assert found["outbox rights"].hint == f"Run GRANT UPDATE ON outbox TO {role}."
    finally:
        run(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_notifications_are_tried_only_where_writers_send_them(postgres_url: str) -> None:
    install(postgres_url, "goharvest")
    assert examined(postgres_url, layout="goharvest")["database notifications"].detail.startswith("not used")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("ALTER TABLE outbox ENGINE = MyISAM", "outbox engine"),
        ("ALTER TABLE outbox MODIFY id BIGINT NOT NULL", "outbox ids"),
        ("ALTER TABLE outbox MODIFY id BIGINT NOT NULL, DROP PRIMARY KEY", "outbox index"),
        ("ALTER TABLE outbox DROP COLUMN headers", "outbox table"),
    ],
)
def test_a_changed_table_in_mariadb_is_found_and_the_remedy_told(mariadb_url: str, change: str, name: str) -> None:
    install(mariadb_url)
    run(mariadb_url, change)
    found = examined(mariadb_url)
    assert failed(found)[0] == name
    assert found[name].hint


def test_rights_in_mariadb_are_tried_without_changing_anything(mariadb_url: str, unique: str) -> None:
    install(mariadb_url)
    role, place = f"'{unique}'@'%'", f"`{make_url(mariadb_url).database}`"
    run(mariadb_url, f"CREATE USER {role} IDENTIFIED BY 'geheim'", f"GRANT SELECT ON {place}.* TO {role}")
    url = make_url(mariadb_url).set(username=unique, password="geheim").render_as_string(hide_password=False)
    try:
        found = examined(url, strategy="mark-purge")
        assert failed(found) == ["outbox rights"]
        assert found["outbox rights"].hint == f"Run GRANT INSERT, DELETE, UPDATE ON outbox TO {role}."
        run(mariadb_url, f"GRANT INSERT, DELETE, UPDATE ON {place}.outbox TO {role}")
        assert failed(examined(url, strategy="mark-purge")) == []
    finally:
        run(mariadb_url, f"DROP USER {role}")


def test_a_mariadb_that_does_not_tell_who_writes_is_a_warning(mariadb_url: str, unique: str) -> None:
    install(mariadb_url)
    assert examined(mariadb_url)["database locks"].status == "ok"
    role, place = f"'{unique}'@'%'", f"`{make_url(mariadb_url).database}`"
    run(mariadb_url, f"CREATE USER {role} IDENTIFIED BY 'geheim'", f"GRANT ALL ON {place}.* TO {role}")
    url = make_url(mariadb_url).set(username=unique, password="geheim").render_as_string(hide_password=False)
    try:
        found = examined(url)
        assert (failed(found), found["database locks"].status) == ([], "warn")
        assert "walks from the head" in found["database locks"].detail
    finally:
        run(mariadb_url, f"DROP USER {role}")
