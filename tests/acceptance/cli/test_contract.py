"""What scripts rely on: exit codes, data on stdout, messages on stderr, --config everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inorder.embedded.server import free_port
from tests.acceptance.cli.conftest import Inorder

COMMANDS = [
    ("init",),
    ("demo",),
    ("up",),
    ("doctor",),
    ("schema", "install"),
    ("schema", "sql"),
    ("relay", "run"),
    ("relay", "status"),
    ("pipeline", "run"),
    ("config", "show"),
    ("config", "check"),
]
READING = [command for command in COMMANDS if command != ("relay", "run")]
HEAVY = ("confluent_kafka", "pandas", "psycopg", "pyarrow", "pydantic", "pyspark", "rich", "sqlalchemy")


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_a_config_file(inorder_command: Inorder, command: tuple[str, ...]) -> None:
    ran = inorder_command(*command, "--help")
    assert ran.returncode == 0
    assert "--config FILE" in ran.stdout
    assert ("--json" in ran.stdout) == (command in READING)


def test_help_lists_every_command_and_the_exit_codes(inorder_command: Inorder) -> None:
    ran = inorder_command("--help")
    assert ran.returncode == 0
    assert all(command[0] in ran.stdout for command in COMMANDS)
    assert "5 guarantee violated" in " ".join(ran.stdout.split())


def test_help_is_quick_because_it_loads_nothing_heavy(environment: dict[str, str]) -> None:
    code = f"import inorder.cli, sys; print([name for name in {HEAVY} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout == "[]\n"


def test_settings_are_read_without_the_drivers_of_servers(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "inorder.toml").write_text('[database]\nurl = "postgresql+psycopg://shop:secret@one,two/shop"\n')
    code = "import inorder, sys; inorder.Settings.load().describe(); "
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout == "['pydantic']\n"


def test_wrong_usage_ends_with_2(inorder_command: Inorder) -> None:
    ran = inorder_command("relay", "fly")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "fly" in ran.stderr


def test_an_unknown_key_ends_with_3_and_names_the_nearest(inorder_command: Inorder, tmp_path: Path) -> None:
    (tmp_path / "inorder.toml").write_text("[relay]\nbach_size = 5\n", "utf-8")
    ran = inorder_command("config", "check")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(
        "error CONFIG-001: relay.bach_size in ./inorder.toml is unknown; did you mean relay.batch_size?\n"
    )
    assert "Traceback" not in ran.stderr


def test_config_show_prints_one_json_document(inorder_command: Inorder) -> None:
    ran = inorder_command("config", "show", "--json", INORDER_KAFKA__SASL_PASSWORD="hunter2")
    assert (ran.returncode, ran.stderr) == (0, "")
    rows = {row["key"]: row for row in json.loads(ran.stdout)}
    assert rows['kafka."sasl.password"'] == {
        "key": 'kafka."sasl.password"',
        "value": "***",
        "source": "env",
        "place": "INORDER_KAFKA__SASL_PASSWORD",
    }


@pytest.mark.full
def test_a_relay_whose_database_is_unreachable_ends_with_4(inorder_command: Inorder) -> None:
    url = f"postgresql+psycopg://u:hunter2@127.0.0.1:{free_port()}/d"
    ran = inorder_command("relay", "status", INORDER_DATABASE__URL=url)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "hunter2" not in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.full
def test_a_schema_can_be_printed_without_any_server(inorder_command: Inorder) -> None:
    for dialect in ("postgresql", "mysql", "sqlite"):
        ran = inorder_command("schema", "sql", "--layout", "native", "--dialect", dialect)
        assert ran.returncode == 0
        assert "CREATE TABLE" in ran.stdout
