"""The doctor on real servers: well when all is well, and otherwise it names what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export NewTopic
    AdminClient,
    NewTopic,
)
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from inorder.embedded.server import free_port
from inorder.outbox.layouts import install_statements
from tests.acceptance.cli.conftest import Inorder

Sql = Callable[..., None]
Findings = dict[str, dict[str, Any]]


@pytest.fixture
def sql(postgres_url: str) -> Sql:
    """Runs statements in the database of the test."""

    def run(*statements: str) -> None:
        engine = create_engine(postgres_url, poolclass=NullPool)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    return run


@pytest.fixture
def outbox(sql: Sql) -> None:
    """The native outbox, as its layout makes it."""
    sql(*install_statements("native", "postgresql", "outbox"))


@pytest.fixture
def examined(
    inorder_command: Inorder, postgres_url: str, kafka_bootstrap: str, unique: str
) -> Callable[..., tuple[int, Findings]]:
    """Runs the doctor; gives its exit code and its findings by name."""

    def run(**variables: str) -> tuple[int, Findings]:
        ran = inorder_command(
            "doctor",
            "--json",
            **{
                "INORDER_DATABASE__URL": postgres_url,
                "INORDER_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
                "INORDER_RELAY__GROUP": unique,
                "INORDER_PIPELINE__UPSERT__TOPIC": unique,
                **variables,
            },
        )
        return ran.returncode, {check["name"]: check for check in json.loads(ran.stdout)}

    return run


Examined = Callable[..., tuple[int, Findings]]


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_nothing_fails_on_a_fresh_installation(examined: Examined) -> None:
    code, found = examined()
    assert [check for check in found.values() if check["status"] == "fail"] == []
    assert code == 0
    assert found["outbox ids"]["detail"] == "identity with CACHE 1"
    assert "created at the first start" in found["marker topic"]["detail"]
    assert found["database notifications"]["status"] == "ok"
    assert found["leadership"]["detail"].startswith("sessions of 6000 ms; the broker allows ")
    assert found["database"]["detail"].startswith("PostgreSQL ")


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_redis_is_asked_where_the_lease_lives_there(examined: Examined, redis_url: str) -> None:
    code, found = examined(INORDER_RELAY__LEADERSHIP="redis", INORDER_REDIS__URL=redis_url)
    assert code == 0
    assert found["leadership"]["detail"] == f"{redis_url} answers; no instance holds the lease"


@pytest.mark.full
def test_a_missing_outbox_is_a_matter_of_configuration(examined: Examined) -> None:
    code, found = examined()
    assert code == 3
    assert found["outbox table"]["hint"] == "Run `inorder schema install --layout native`."


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("ALTER TABLE outbox ALTER COLUMN id SET CACHE 50", "outbox ids"),
        ("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey", "outbox index"),
        ("ALTER TABLE outbox DROP COLUMN headers", "outbox table"),
    ],
)
def test_a_changed_outbox_is_found_and_the_remedy_told(examined: Examined, sql: Sql, change: str, name: str) -> None:
    sql(change)
    code, found = examined()
    assert code == 3
    assert [check["name"] for check in found.values() if check["status"] == "fail"] == [name]
    assert found[name]["hint"]


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_autovacuum_that_is_off_is_a_warning(examined: Examined, sql: Sql) -> None:
    sql("ALTER TABLE outbox SET (autovacuum_enabled = false)")
    code, found = examined()
    assert (code, found["outbox vacuum"]["status"]) == (0, "warn")


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_missing_rights_are_named_with_the_grant(examined: Examined, sql: Sql, postgres_url: str, unique: str) -> None:
    role = f"{unique}_role"
    sql(
        f"CREATE ROLE {role} LOGIN PASSWORD 'geheim'",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT SELECT, INSERT ON outbox TO {role}",
    )
    url = make_url(postgres_url).set(username=role, password="geheim").render_as_string(hide_password=False)
    try:
        code, found = examined(INORDER_DATABASE__URL=url)
        assert code == 3
        assert found["outbox rights"]["hint"] == f"Run GRANT DELETE, UPDATE ON outbox TO {role}."
        _, found = examined(INORDER_DATABASE__URL=url, INORDER_RELAY__TABLE="other")
        assert "may not create tables" in found["outbox table"]["hint"]
    finally:
        sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_topics_are_judged_by_their_settings(examined: Examined, kafka_bootstrap: str, unique: str) -> None:
    marker = f"inorder.{unique}.marker"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    made = admin.create_topics(
        [
            NewTopic(marker, 1, 1, config={"cleanup.policy": "delete"}),
            NewTopic(unique, 3, 1, config={"max.message.bytes": "20000"}),
        ]
    )
    for future in made.values():
        future.result(timeout=60)
    code, found = examined()
    assert code == 3
    assert found["marker topic"]["status"] == "fail"
    assert found["pipeline topic"]["detail"] == f"{unique}: 3 partition(s)"
    assert found["message size"]["status"] == "warn"


@pytest.mark.full
def test_an_unreachable_kafka_ends_with_4(examined: Examined) -> None:
    code, found = examined(INORDER_KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")
    assert (code, found["kafka"]["unreachable"]) == (4, True)
    assert found["database"]["status"] == "ok"


@pytest.mark.full
def test_an_unreachable_database_ends_with_4(examined: Examined) -> None:
    code, found = examined(INORDER_DATABASE__URL=f"postgresql+psycopg://u:hunter2@127.0.0.1:{free_port()}/d")
    assert (code, found["database"]["unreachable"]) == (4, True)
    assert found["kafka"]["status"] == "ok"


@pytest.mark.full
@pytest.mark.usefixtures("outbox")
def test_text_is_for_people_and_hints_go_to_stderr(
    inorder_command: Inorder, postgres_url: str, kafka_bootstrap: str
) -> None:
    ran = inorder_command(
        "doctor",
        INORDER_DATABASE__URL=postgres_url,
        INORDER_KAFKA__BOOTSTRAP_SERVERS=kafka_bootstrap,
    )
    assert ran.returncode == 0
    assert ran.stdout.startswith("ok ")
    assert "inorder schema install --layout table" in ran.stderr
