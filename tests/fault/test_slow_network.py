"""A backlog that the network cannot carry within the time of a transaction gets through, once and in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import inorder
from inorder.database.postgres import connect
from inorder.embedded.server import HOST, free_port
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from tests.conftest import Eventually
from tests.network import ProxiedKafka, Proxy

ROWS = 48
ROW_BYTES = 100_000
BYTES_A_SECOND = 400_000.0
TRANSACTION_MS = 4000
"""In which a third of the backlog gets through."""


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_backlog_too_large_for_the_time_of_a_transaction_gets_through_in_parts(
    postgres_url: str, unique: str, tmp_path: Path, eventually: Eventually, strategy: str
) -> None:
    chance = random.Random(7)
    values = [b"%03d" % number + chance.randbytes(ROW_BYTES) for number in range(ROWS)]  # nothing to compress
    with connect(postgres_url, "test") as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
        Outbox().publish_list(connection, [inorder.Message(unique, key="k", value=value) for value in values])

    def left() -> int:
        with connect(postgres_url, "test") as connection:
            row = connection.execute("SELECT count(*) FROM outbox").fetchone()
        return int(row[0]) if row else 0

    with Proxy((HOST, free_port())) as network, ProxiedKafka(tmp_path / "kafka", network):
        properties = {"bootstrap.servers": network.address}
        ensure_topic(properties, unique, 1)
        settings = inorder.Settings.load(
            kafka={**properties, "transaction.timeout.ms": TRANSACTION_MS},
            database={"url": postgres_url},
            relay={"group": unique, "leadership": "none", "strategy": strategy},
        )
        network.bytes_a_second = BYTES_A_SECOND
        with inorder.Relay(settings):
            eventually(lambda: left() == 0, 240)
        network.bytes_a_second = float("inf")
        found = [(record.value or b"")[:3] for record in read_back(properties, unique)]
    assert found == [value[:3] for value in values]
