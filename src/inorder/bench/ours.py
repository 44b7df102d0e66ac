"""Our relay in the contest, as a user runs it: `inorder relay run` with a settings file."""

from __future__ import annotations

from inorder.bench.contender import TableReader
from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.tables import LAYOUTS
from inorder.embedded.service import Program
from inorder.sql import quoted


class Ours(TableReader):
    """Every drain is carried to its end, whatever it takes."""

    name = "inorder"

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS[options.setting.layout], place.settings.relay.table)

    def empty(self) -> None:
        """The table was made with the servers."""
        self.place.watching.execute(f"TRUNCATE {quoted(self.table)}")

    def program(self, load: Load) -> Program:  # noqa: ARG002  ours is set the same way for all
        """The same for every load."""
        return self.place.service("relay", "run")
