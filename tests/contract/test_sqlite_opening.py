"""Whoever opens a new SQLite file first, all others open it too, at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inorder.database.sqlite import connect

OPENERS = 8
FILES = 40


def test_a_new_file_that_many_open_at_once_is_open_to_all_of_them(tmp_path: Path) -> None:
    together = threading.Barrier(OPENERS)

    def open_all(_: int) -> list[str]:
        modes = []
        for number in range(FILES):
            together.wait(60)
            connection = connect(f"sqlite:///{tmp_path / str(number)}.db")
            modes += [mode for (mode,) in connection.execute("PRAGMA journal_mode").fetchall()]
            connection.close()
        return modes

    with ThreadPoolExecutor(OPENERS) as pool:
        assert list(pool.map(open_all, range(OPENERS))) == [["wal"] * FILES] * OPENERS
