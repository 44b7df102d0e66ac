"""No command shows a secret: not in what it prints, logs or raises, whatever is wrong with the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

SECRET = "hunter2-Geheim"
CLOSED = "127.0.0.1:1"

# Settings that a command accepts, and those that it refuses, each with a secret.
SETTINGS = {
    "postgresql": f'[database]\nurl = "postgresql+psycopg://shop:{SECRET}@{CLOSED}/shop"',
    "postgresql-query": f'[database]\nurl = "postgresql+psycopg://shop@{CLOSED}/shop?password={SECRET}"',
    "postgresql-option": f'[database]\nurl = "postgresql+psycopg://shop:{SECRET}@{CLOSED}/shop?nonsense=1"',
    "postgresql-hash": f'[database]\nurl = "postgresql+psycopg://shop:#?/{SECRET}@{CLOSED}/shop"',
    "postgresql-at": f'[database]\nurl = "postgresql+psycopg://shop:p@{SECRET}@{CLOSED}/shop"',
    "postgresql-at-slash": f'[database]\nurl = "postgresql+psycopg://shop:p@a/{SECRET}@{CLOSED}/shop"',
    "postgresql-no-host": f'[database]\nurl = "postgresql+psycopg://shop:{SECRET}/shop"',
    "mysql": f'[database]\nurl = "mysql+pymysql://shop:{SECRET}@{CLOSED}/shop"',
    "mysql-at": f'[database]\nurl = "mysql+pymysql://shop:p@{SECRET}@{CLOSED}/shop"',
    "wrong-scheme": f'[database]\nurl = "postgres://shop:{SECRET}@{CLOSED}/shop"',
    "no-scheme": f'[database]\nurl = "shop:{SECRET}@{CLOSED}"',
    "journal-wrong-scheme": f'[journal]\nstore = "postgres://shop:{SECRET}@{CLOSED}/shop"',
    "journal-cassandra-hash": f'[journal]\nstore = "cassandra://shop:p#{SECRET}@{CLOSED}/shop"',
    "journal-option": f'[journal]\nstore = "cassandra://shop:{SECRET}@{CLOSED}/shop?nonsense=1"',
    "redis-hash": f'[redis]\nurl = "redis://:p#{SECRET}@{CLOSED}/0"',
    "kafka-password": f'[kafka]\n"sasl.password" = "{SECRET}"',
    "kafka-list": f'[kafka]\n"sasl.password" = ["{SECRET}"]',
    "kafka-assertion": f'[kafka]\n"sasl.oauthbearer.assertion.private.key.passphrase" = "{SECRET}"',
    "kafka-url": f'[kafka]\n"sasl.oauthbearer.token.endpoint.url" = "https://shop:{SECRET}@idp/"',
    "misplaced": f'[relay]\nstrategy = "postgresql+psycopg://shop:{SECRET}@{CLOSED}/shop"',
}
COMMANDS = [
    ("config", "show"),
    ("config", "show", "--json"),
    ("config", "check"),
    ("schema", "plan"),
    ("schema", "install", "--layout", "native"),
]


@pytest.mark.parametrize("kind", SETTINGS)
def test_no_command_shows_a_secret(
    kind: str, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Path("inorder.toml").write_text(SETTINGS[kind] + "\n")
    monkeypatch.setenv("INORDER_TRACEBACK", "1")
    for command in COMMANDS:
        ran = run(*command)
        assert SECRET not in ran.stdout + ran.stderr + caplog.text
        # A fault of the settings or of a server has its own code; 1 is an error that was not foreseen.
        assert ran.code in (0, 3, 4)
