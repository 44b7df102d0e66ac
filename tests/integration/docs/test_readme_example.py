"""The README's example on PostgreSQL, and its message all the way to Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import inorder
from inorder.kafka.readers import read_back
from tests.conftest import Eventually
from tests.operating import install_schema
from tests.unit.docs.markdown import blocks, page


def test_the_message_of_the_example_reaches_its_topic_once(
    postgres_url: str,
    kafka_bootstrap: str,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INORDER_DATABASE__URL", postgres_url)
    monkeypatch.setenv("INORDER_KAFKA__BOOTSTRAP_SERVERS", kafka_bootstrap)
    monkeypatch.setenv("INORDER_RELAY__GROUP", unique)
    settings = inorder.Settings.load()
    install_schema(settings, "native")
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)"))
        connection.execute(sa.text("INSERT INTO orders VALUES (42, false)"))

    [example] = blocks(page("README.md"), "python")
    # The topic is the only word that is changed: the session's broker is shared.
    namespace: dict[str, object] = {}
    exec(compile(example.replace('"upsert"', f'"{unique}"'), "README.md", "exec"), namespace)  # noqa: S102 - our own page
    used = namespace["engine"]
    assert isinstance(used, sa.Engine)
    used.dispose()

    with inorder.Relay(settings) as relay:
        eventually(lambda: relay.published == 1)
    found = [(record.key, record.value) for record in read_back(settings.kafka.properties, unique)]
    assert found == [(b"42", b'{"id":42,"enabled":true}')]
