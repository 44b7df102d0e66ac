"""Dead letters in the database of the target tables: how operators find, retry and discard them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from inorder.database.database import Database, Dialect, InstallingDatabase, moment, statements_of
from inorder.database.sql import quoted_table
from inorder.pipeline.stores.ports import (
    LetterFilter,
    LetterGroup,
    LetterPlace,
    LetterPosition,
    SettledLetter,
    StoredLetter,
)

Execute = Callable[[str, Mapping[str, Any]], int]
"""Runs a statement in an open transaction; returns the number of rows written."""

_FIRST = -1
"""Below every offset."""


class SqlDeadLetters:
    """`DeadLetters` of a database; creates its tables at the first call."""

    def __init__(self, database: Database) -> None:
        self._database = InstallingDatabase(database, dead_letter_tables(database.dialect))
        self._dialect = database.dialect
        self._statements = _render_statements(database.dialect)

    def counts(self, wanted: LetterFilter) -> dict[str, int]:
        """The most frequent code first."""
        found = self._database.execute(self._statements["counts"], _bound(wanted))
        return {code: int(count) for code, count in found.rows}

    def places(self, wanted: LetterFilter) -> list[LetterPlace]:
        return [LetterPlace(*row) for row in self._database.execute(self._statements["places"], _bound(wanted)).rows]

    def page(
        self, place: LetterPlace, wanted: LetterFilter, above: int = _FIRST, most: int = 1000
    ) -> list[StoredLetter]:
        at = {f"at_{name}": value for name, value in place._asdict().items()}
        parameters = {**_bound(wanted), **at, "above": above, "most": most}
        return [_letter(row) for row in self._database.execute(self._statements["page"], parameters).rows]

    def after(self, behind: LetterPosition, wanted: LetterFilter, most: int) -> list[StoredLetter]:
        """The first of the selected letters behind a position, in the order of the primary key."""
        at = {f"after_{name}": value for name, value in behind._asdict().items()}
        found = self._database.execute(self._statements["after"], {**_bound(wanted), **at, "most": most})
        return [_letter(row) for row in found.rows]

    def count(self, wanted: LetterFilter, most: int) -> int:
        """How many letters are selected, counted up to a bound."""
        return int(self._database.execute(self._statements["count"], {"most": most, **_bound(wanted)}).rows[0][0])

    def groups(self, wanted: LetterFilter) -> list[LetterGroup]:
        """The selected letters by pipeline, topic and code, the largest group first."""
        found = self._database.execute(self._statements["groups"], _bound(wanted))
        return [
            LetterGroup(pipeline, topic, code, int(count), moment(oldest))
            for pipeline, topic, code, count, oldest in found.rows
        ]

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        found = self._database.execute(self._statements["never_applied"], {**place._asdict(), "above": above})
        return frozenset(offset for (offset,) in found.rows)

    def newest_generation(self, pipeline: str) -> int:
        """0 if the pipeline has read nothing yet."""
        found = self._database.execute(self._statements["newest_generation"], {"pipeline": pipeline})
        return int(found.rows[0][0] or 0)

    def discard(self, wanted: LetterFilter, reason: str) -> int:
        return self.discard_listed(wanted, reason, 0)[0]

    def discard_listed(self, wanted: LetterFilter, reason: str, most: int) -> tuple[int, list[SettledLetter]]:
        """Discards the selected letters; returns how many there were, and the first of them."""
        batch = uuid.uuid4().hex
        with self._database.transaction() as transaction:
            count = _take(
                lambda statement, parameters: transaction.execute(statement, parameters).count,
                self._dialect,
                "matching",
                {**_bound(wanted), "action": "discard", "reason": reason, "batch": batch},
            )
            if not count or not most:
                return count, []
            listed = transaction.execute(self._statements["settled"], {"batch": batch, "most": most}).rows
            return count, [SettledLetter(*row) for row in listed]

    def close(self) -> None:
        self._database.close()


def settle(execute: Execute, dialect: Dialect, place: LetterPlace, offset: int, action: str, reason: str) -> bool:
    """Deletes one letter and records the reason, in a transaction of a target table; False if it does not exist."""
    letter = {**place._asdict(), "offset": offset, "action": action, "reason": reason, "batch": uuid.uuid4().hex}
    return _take(execute, dialect, "at", letter) == 1


def dead_letter_tables(dialect: Dialect) -> list[str]:
    """The DDL of the letters, of the actions on them, and of the pointers."""
    tables = statements_of("inorder.pipeline", dialect, "table.sql")
    return [
        tables["create_pointer"],
        *tables.starting_with("add_pointer"),
        tables["create_dead_letter"],
        *statements_of("inorder.pipeline", dialect, "dead_letters.sql").starting_with("install"),
    ]


def _take(execute: Execute, dialect: Dialect, condition: str, parameters: Mapping[str, Any]) -> int:
    statements = _render_statements(dialect)
    if execute(statements[f"note_{condition}"], parameters) == 0:
        return 0
    return execute(statements[f"take_{condition}"], parameters)


@cache
def _render_statements(dialect: Dialect) -> dict[str, str]:
    statements = statements_of("inorder.pipeline", dialect, "dead_letters.sql")
    names = {name: quoted_table(dialect, name) for name in ("partition", "offset", "key", "value")}
    conditions = {name: statements.render(name, **names) for name in ("matching", "at")}
    settled = statements.render("settled", **{name: names[name] for name in ("partition", "offset", "key")})
    names |= {"actor": statements["actor"], "for_update": statements["for_update"]}
    found = {"settled": settled} | {
        name: statements.render(name, **names, matching=conditions["matching"])
        for name in ("counts", "count", "places", "page", "after", "groups", "never_applied", "newest_generation")
    }
    for which, condition in conditions.items():
        for name in ("note", "take"):
            found[f"{name}_{which}"] = statements.render(name, **names, condition=condition)
    return found


def _bound(wanted: LetterFilter) -> dict[str, Any]:
    asked = asdict(wanted)
    return asked | {f"any_{name}": value is None for name, value in asked.items()}


def _letter(row: tuple[Any, ...]) -> StoredLetter:
    letter = StoredLetter(*row)
    at = letter.record_timestamp
    return replace(letter, record_timestamp=None if at is None else moment(at), recorded_at=moment(letter.recorded_at))
