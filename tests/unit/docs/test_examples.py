"""The README's example runs unchanged, its figures are those that the demo prints, and the notebook runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from inorder.demo.path import DemoSummary
from inorder.demo.run import show
from inorder.outbox.layouts import install_statements
from inorder.testing.checker import Verdict
from tests.unit.docs.markdown import ROOT, blocks, page


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sa.Engine:
    """A database with the example's order and an outbox, which the settings of this process name."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INORDER_DATABASE__URL", url)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)"))
        connection.execute(sa.text("INSERT INTO orders VALUES (42, false)"))
        for statement in install_statements("native", "sqlite", "outbox"):
            connection.execute(sa.text(statement))
    return engine


def run_example(source: str) -> None:
    namespace: dict[str, object] = {}
    try:
        exec(compile(source, "README.md", "exec"), namespace)  # noqa: S102 - our own page
    finally:
        if isinstance(engine := namespace.get("engine"), sa.Engine):
            engine.dispose()


def stored(engine: sa.Engine) -> tuple[bool, list[tuple[object, ...]]]:
    with engine.connect() as connection:
        paid = connection.execute(sa.text("SELECT paid FROM orders WHERE id = 42")).scalar_one()
        rows = connection.execute(sa.text('SELECT topic, "key", "value" FROM outbox')).all()
    return bool(paid), [tuple(row) for row in rows]


def test_the_example_commits_the_row_and_the_message_together(shop: sa.Engine) -> None:
    [example] = blocks(page("README.md"), "python")
    run_example(example)
    assert stored(shop) == (True, [("upsert", b"42", b'{"id":42,"enabled":true}')])


def test_the_example_leaves_neither_when_its_transaction_fails(shop: sa.Engine) -> None:
    [example] = blocks(page("README.md"), "python")
    with pytest.raises(ZeroDivisionError):
        run_example(example + "    1 / 0\n")
    assert stored(shop) == (False, [])


def test_the_example_is_about_ten_lines() -> None:
    [example] = blocks(page("README.md"), "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


def test_the_summary_in_the_readme_is_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    seconds = {"write": 5.38, "relay": 5.38, "pipeline": 25.6, "start": 3.88, "total": 32.94}
    show(Console(stderr=True, width=120), DemoSummary(2693, 2693, 2569, 124, Verdict(), seconds), rolled_back=307)
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().err.splitlines())
    assert f"{printed}\n" in blocks(page("README.md"), "text")


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "walkthrough.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split(":")[0] for line in ran.stdout.splitlines()] == [
        "after a commit",
        "after a rollback",
        "refused",
        "balance",
        "refused",
    ]
