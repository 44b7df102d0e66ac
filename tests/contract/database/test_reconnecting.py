"""A connection that broke is reported once, and the next call works."""

from __future__ import annotations

import pytest

from inorder.database.database import open_database
from inorder.model.errors import UnreachableError

OWN_SESSION = {"postgres": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}
END = {"postgres": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}


@pytest.fixture(params=["postgres", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def test_a_session_that_was_ended_is_opened_again_at_the_next_call(server_url: str) -> None:
    ours, others = open_database(server_url, "test"), open_database(server_url, "test")
    with ours.transaction() as transaction:
        session = transaction.execute(OWN_SESSION[ours.dialect]).rows[0][0]
    with others.transaction() as transaction:
        transaction.execute(END[others.dialect].format(session))
    with pytest.raises(UnreachableError), ours.transaction():
        pass
    with ours.transaction() as transaction:
        assert transaction.execute(OWN_SESSION[ours.dialect]).rows[0][0] != session
    ours.close()
    others.close()


def test_a_session_that_is_ended_inside_a_transaction_leaves_nothing_behind(server_url: str) -> None:
    ours, others = open_database(server_url, "test"), open_database(server_url, "test")
    ours.install(["CREATE TABLE things (id integer)"])

    def work() -> None:
        with ours.transaction() as transaction:
            transaction.execute("INSERT INTO things VALUES (1)")
            session = transaction.execute(OWN_SESSION[ours.dialect]).rows[0][0]
            with others.transaction() as ending:
                ending.execute(END[others.dialect].format(session))
            transaction.execute("INSERT INTO things VALUES (2)")

    with pytest.raises(UnreachableError):
        work()
    with ours.transaction() as transaction:
        assert transaction.execute("SELECT id FROM things").rows == []
    ours.close()
    others.close()
