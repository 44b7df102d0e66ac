"""Our relay in the contest, as a user runs it: `inorder relay run` with a settings file."""

from __future__ import annotations

from inorder import sql
from inorder.bench.contender import TableReader
from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.tables import LAYOUTS
from inorder.embedded.service import Program

_KEEPING = sql.load("inorder.bench", "keeping.sql")


class Ours(TableReader):
    """Every drain is carried to its end, whatever it takes."""

    name = "inorder"

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS[options.setting.layout], place.settings.relay.table)

    def empty(self) -> None:
        """The table was made with the servers."""
        self.place.watching.execute(f"TRUNCATE {sql.quoted(self.table)}")

    def program(self, load: Load) -> Program:  # noqa: ARG002  ours is set the same way for all
        """The same for every load."""
        return self.place.service("relay", "run")


class OursKeeping(Ours):
    """The strategy `polling`, which leaves rows in their table: all is done when its offset has passed them."""

    def empty(self) -> None:
        """The offset begins where the ids of the next rows do."""
        for statement in _KEEPING.starting_with("empty"):
            self.place.watching.execute(statement.format(**self._tables))

    def is_settled(self) -> bool:
        """Whether the offset is at the end, and nothing is missing."""
        statement = _KEEPING.render("is_settled", **self._tables)
        return self.place.watching.execute(statement).fetchone() == (True,)

    @property
    def _tables(self) -> dict[str, str]:
        sides = self.place.settings.relay.polling.side_tables.beside(self.table)
        return {
            "table": sql.quoted(self.table),
            "missing": sql.quoted(sides.missing),
            "exceeded": sql.quoted(sides.exceeded),
            "offset": sql.quoted(sides.offset),
        }


def our_side(place: BenchPlace, options: RelayOptions) -> Ours:
    """As the strategy settles its rows."""
    return OursKeeping(place, options) if options.setting.strategy == "polling" else Ours(place, options)
