"""A credentials file is read for each new connection, so that a password may change while a service runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from inorder.database.credentials import add_credentials_file
from inorder.database.database import Database, open_database
from inorder.model.errors import AuthenticationError, UnreachableError
from inorder.operate.doctor import examine_database
from inorder.settings import Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "login"


def write(file: Path, user: str, password: str = "") -> None:
    file.write_text(f'user = "{user}"\npassword = "{password}"\n', "utf-8")


def who(database: Database) -> str:
    return str(database.execute("SELECT current_user").rows[0][0]).partition("@")[0]


@pytest.fixture
def roles(postgres_url: str, unique: str) -> Iterator[tuple[str, str]]:
    """Two users of the session's PostgreSQL, which asks nobody for a password."""
    names = f"{unique}_a", f"{unique}_b"
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE ROLE {name} LOGIN")
        yield names
        for name in names:
            connection.execute(f"DROP ROLE {name}")


def test_the_user_of_the_file_goes_over_that_of_the_url_and_a_new_one_counts_from_the_next_connection(
    postgres_url: str, roles: tuple[str, str], file: Path
) -> None:
    write(file, roles[0])
    database = open_database(add_credentials_file(postgres_url, file), "test")
    assert who(database) == roles[0]
    write(file, roles[1])
    assert who(database) == roles[0], "a connection that is there stays"
    database.close()
    assert who(database) == roles[1]
    database.close()


def test_json_is_read_as_well(postgres_url: str, roles: tuple[str, str], file: Path) -> None:
    file.write_text(f'{{"user": "{roles[0]}", "password": "x", "host": "ignored"}}', "utf-8")
    database = open_database(add_credentials_file(postgres_url, file), "test")
    assert who(database) == roles[0]
    database.close()


def test_other_parameters_of_the_url_stay(postgres_url: str, roles: tuple[str, str], file: Path) -> None:
    write(file, roles[0])
    database = open_database(add_credentials_file(f"{postgres_url}?options=-cstatement_timeout%3D4321", file), "test")
    assert database.execute("SHOW statement_timeout").rows[0][0] == "4321ms"
    database.close()


def test_the_doctor_connects_as_the_user_of_the_file(postgres_url: str, roles: tuple[str, str], file: Path) -> None:
    write(file, roles[0])
    settings = Settings.load(database={"url": postgres_url, "credentials_file": str(file)})
    found = examine_database(settings)
    assert found[0].status == "ok"
    assert found[0].detail.endswith(f"as {roles[0]}")


@pytest.mark.parametrize("content", [None, "", "user = 'half"])
def test_a_file_that_is_just_being_written_is_waited_for(postgres_url: str, file: Path, content: str | None) -> None:
    if content is not None:
        file.write_text(content, "utf-8")
    database = open_database(add_credentials_file(postgres_url, file), "test")
    with pytest.raises(UnreachableError, match="read again"):
        who(database)


@pytest.fixture
def mariadb_login(mariadb_url: str, unique: str, file: Path) -> Iterator[tuple[str, str, pymysql.cursors.Cursor]]:
    """A user with a password, its name and a root's cursor."""
    url = make_url(mariadb_url)
    connecting = pymysql.connect(host=url.host, port=url.port or 0, user=url.username or "", autocommit=True)
    with connecting as connection, connection.cursor() as root:
        root.execute(f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'first'")
        root.execute(f"GRANT ALL ON {url.database}.* TO '{unique}'@'%'")
        yield add_credentials_file(mariadb_url, file), unique, root
        root.execute(f"DROP USER '{unique}'@'%'")


def test_a_password_changes_while_a_service_runs(
    mariadb_login: tuple[str, str, pymysql.cursors.Cursor], file: Path
) -> None:
    url, user, root = mariadb_login
    write(file, user, "first")
    database = open_database(url, "test")
    assert who(database) == user
    root.execute(f"ALTER USER '{user}'@'%' IDENTIFIED BY 'second'")
    database.close()
    with pytest.raises(UnreachableError, match="read again") as caught:
        who(database)
    assert "first" not in str(caught.value)
    write(file, user, "second")
    assert who(database) == user
    database.close()


def test_without_a_file_a_wrong_login_is_for_a_person_to_mend(mariadb_url: str) -> None:
    wrong = make_url(mariadb_url).set(username="nobody", password="wrong")
    database = open_database(wrong.render_as_string(hide_password=False), "test")
    with pytest.raises(AuthenticationError):
        who(database)
