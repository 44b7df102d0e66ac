"""The log of actions: who did what to which records, from where and why, and what became of it.

An entry is written before its action, as `started`, and completed after it. So no action is without an entry, and an
entry that stays `started` says that the process ended in between; the tables of the products say what was done by then.
An action whose entry cannot be written is not done.

Installations of earlier versions lack the table, and their operators may not create it. Commands, which had no log
then, go on without an entry and log that (`is_required` is False); web pages and the HTTP API refuse.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from inorder.database.database import Database, Dialect, InstallingDatabase, moment, statements_of
from inorder.model.errors import InorderError

log = logging.getLogger("inorder.operate")

T = TypeVar("T")

Origin = Literal["command", "api", "page"]
State = Literal["started", "done", "failed"]

MOST_FATES: Final = 10_000
"""Fates that an entry keeps; all are counted."""
_LAST: Final = "~"
"""Behind every id."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and through what."""

    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the records: how many of each fate, and each of them as far as it is known."""

    counts: Mapping[str, int] = field(default_factory=dict)
    fates: Sequence[Mapping[str, Any]] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An entry of the log."""

    id: str
    acted_at: datetime
    actor: str
    origin: str
    action: str
    target: str
    reason: str
    state: str
    outcome: str
    """JSON; empty in lists."""

    @property
    def result(self) -> Outcome:
        return Outcome(**json.loads(self.outcome)) if self.outcome else Outcome()


class Logged(NamedTuple, Generic[T]):
    """The result of an action, and its entry; the id is empty where there is none."""

    id: str
    result: T


class ActionLog:
    """The log in the database of the outbox; creates its table at the first call."""

    def __init__(self, database: Callable[[], Database], actor: Actor, *, is_required: bool = True) -> None:
        self._open = database
        self._actor = actor
        self._is_required = is_required
        self._opened: InstallingDatabase | None = None

    def record(
        self,
        action: str,
        target: Mapping[str, Any],
        reason: str,
        act: Callable[[], T],
        describe: Callable[[T], Outcome],
        so_far: Callable[[], T] | None = None,
    ) -> Logged[T]:
        """Does it and logs it; `describe` says what became of the records, `so_far` what was done before an error."""
        id = self._begin(action, target, reason)
        try:
            result = act()
        except BaseException as error:
            before = Outcome() if so_far is None else describe(so_far())
            message = error.message if isinstance(error, InorderError) else type(error).__name__
            self._finish(id, "failed", replace(before, error=message))
            raise
        self._finish(id, "done", describe(result))
        return Logged(id, result)

    def page(self, before: str = _LAST, most: int = 50) -> list[Action]:
        """Entries before one, the newest first."""
        found = self._database.execute(self._statements["page"], {"before": before, "most": most})
        return [_action(row) for row in found.rows]

    def read(self, id: str) -> Action | None:
        """An entry with its outcome; None where there is none."""
        rows = self._database.execute(self._statements["one"], {"id": id}).rows
        return _action(rows[0]) if rows else None

    @property
    def _database(self) -> InstallingDatabase:
        if self._opened is None:
            database = self._open()
            self._statements = statements_of("inorder.operate", database.dialect, "actions.sql")
            # Last: another thread that finds it open uses the statements too.
            self._opened = InstallingDatabase(database, action_tables(database.dialect))
        return self._opened

    def _begin(self, action: str, target: Mapping[str, Any], reason: str) -> str:
        id = f"{time.time_ns() // 1000:016x}-{secrets.token_hex(4)}"
        entry = {"id": id, "actor": self._actor.name, "origin": self._actor.origin, "action": action, "reason": reason}
        try:
            database = self._database
            database.execute(self._statements["begin"], entry | {"target": _text(target)})
        except InorderError as error:
            if self._is_required:
                raise
            log.warning("operate.action_not_logged", extra={"action": action, "error": str(error)})
            return ""
        return id

    def _finish(self, id: str, state: State, outcome: Outcome) -> None:
        if not id:
            return
        kept = replace(outcome, fates=[dict(each) for each in outcome.fates[:MOST_FATES]])
        text = _text({"counts": dict(kept.counts), "fates": kept.fates, "error": kept.error})
        try:
            self._database.execute(self._statements["finish"], {"id": id, "state": state, "outcome": text})
        except InorderError as error:  # the action itself is done, or its own error says more
            log.warning("operate.action_not_completed", extra={"action_id": id, "error": str(error)})


def action_tables(dialect: Dialect) -> list[str]:
    """The DDL of the log."""
    return statements_of("inorder.operate", dialect, "actions.sql").starting_with("install")


def _text(value: object) -> str:
    # PostgreSQL's text takes no NUL, and JSON escapes it.
    return json.dumps(value, default=str, ensure_ascii=False)


def _action(row: tuple[Any, ...]) -> Action:
    found = Action(*row)
    return replace(found, acted_at=moment(found.acted_at))
