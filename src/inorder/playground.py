"""Embedded servers with the tables of inorder and a settings file of their own, for the demo and the benchmarks."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from inorder.app import App
from inorder.database.database import Database, open_database
from inorder.database.postgres import connect
from inorder.embedded import Stack
from inorder.embedded.server import write_private
from inorder.embedded.stack import settings_text
from inorder.settings import Settings


class Playground:
    """PostgreSQL and Kafka, the outbox and the pipeline's tables, and a connection to watch them.

    A context manager; what a subclass starts in `prepare` it stops in `finish`. `more` is added to the settings file.
    """

    def __init__(self, stack: Stack, more: str) -> None:
        self._stack = stack
        self._more = more
        self.config: Path
        self.settings: Settings
        self.url: str
        self.watching: psycopg.Connection[Any]
        self.database: Database

    def __enter__(self) -> Self:
        self._stack.start()
        try:
            self._install()
            self.prepare()
        except BaseException:
            self._stack.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.watching.close()
            self.database.close()
            self.finish()
        finally:
            self._stack.stop()

    @property
    def folder(self) -> Path:
        """Where everything that runs here writes its logs."""
        return self._stack.folder

    def write_config(self, name: str, more: str) -> Path:
        """A settings file of these servers and of `more`, for its owner only."""
        sections = self._stack.settings()
        file = self.folder / name
        write_private(file, settings_text({name: sections[name] for name in ("kafka", "database")}) + more)
        return file

    def prepare(self) -> None:
        """Called when the servers are up and the tables exist."""

    def finish(self) -> None:
        """Called before the servers stop."""

    def _install(self) -> None:
        self.config = self.write_config("inorder.toml", self._more)
        self.settings = Settings.load(self.config)
        self.url = self.settings.database.require_url()
        with App(self.settings) as app:
            for layout in (self.settings.relay.layout, "table"):
                app.install_schema(layout)
        self.watching = connect(self.url, "inorder (watch)", autocommit=True)
        self.database = open_database(self.url, "inorder (watch)")
