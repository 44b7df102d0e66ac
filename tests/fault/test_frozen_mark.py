"""A leader that is paused while it reads what it has marked does not block other leaders."""

from __future__ import annotations

from uuid import uuid4

import pytest

from inorder.database.postgres import PostgresReconnecting, connect
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from tests.conftest import Eventually

ROWS = 200
KILOBYTES = 64
"""In total more than the buffers between server and client hold, so that the statement cannot finish unread."""

_FILL = f"""
INSERT INTO outbox (topic, key, value)
SELECT 't', 'k', convert_to(repeat('x', {KILOBYTES * 1024}), 'UTF8') FROM generate_series(1, {ROWS})
"""
_MARK = "UPDATE outbox SET leader_id = '00000000-0000-0000-0000-000000000001' RETURNING *"
_IS_STUCK = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'ClientWrite'"


@pytest.mark.timeout(60)
def test_rows_that_a_paused_leader_was_about_to_read_are_free_for_the_next_one(
    postgres_url: str, unique: str, eventually: Eventually
) -> None:
    with connect(postgres_url, "test", autocommit=True) as connection:
        for statement in (*install_statements("native", "postgresql", "outbox"), _FILL):
            connection.execute(statement)
        paused = PostgresReconnecting(postgres_url, unique)
        paused.get().pgconn.send_query(_MARK.encode())  # and its result is not read
        eventually(lambda: connection.execute(_IS_STUCK, [unique]).fetchone() == (1,))
        successor = PostgresOutboxStore(postgres_url, "outbox")
        assert len(successor.mark(uuid4(), ROWS).rows) == ROWS
        successor.close()
        paused.close()
