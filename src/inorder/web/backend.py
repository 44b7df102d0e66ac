"""All that pages and API ask for: the last readings, lists by key, and actions.

Three connections that do not wait for each other: the readings have an `App` of their own, requests that read share
another, and each action opens one for itself, because it may hold a transaction for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final, Literal

from inorder.app import App
from inorder.journal.stores.ports import JournalFilter
from inorder.model.errors import ConfigurationError
from inorder.model.journal import Key
from inorder.operate.actions import Action, ActionLog, Actor, Logged, Outcome
from inorder.operate.changes import LoggedChanges
from inorder.operate.fields import (
    exceeded_fields,
    group_fields,
    letter_coordinates,
    letter_fields,
    letter_position,
    missing_fields,
    quarantine_fields,
    trace_fields,
    whole_exceeded,
    whole_letter,
)
from inorder.operate.flow import Flow, flow_of
from inorder.operate.journals import SHOWN_EVENTS, journal_fields, listed_fields
from inorder.operate.key_lookup import Before, key_text
from inorder.operate.watch import PartReading, Sample, Watch
from inorder.pipeline.stores.ports import LetterPosition
from inorder.settings import Settings
from inorder.topics.pauses import PauseKind

Fields = dict[str, Any]
Kind = Literal["exceeded", "dead-letters"]
Open = Callable[[Actor], App]

CHECKS: Final = ("database", "kafka")
"""What the service needs to be ready."""
COUNTED_NOW: Final = 10_000
"""So many records the preview of an action counts exactly."""
MOST: Final = 500
"""The longest page of a list."""
NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


class WebBackend:
    """The services of a site; a context manager."""

    def __init__(self, settings: Settings, open_app: Open | None = None) -> None:
        self.settings = settings
        self._open = open_app or (lambda actor: App(settings, actor=actor))
        self._opened = ExitStack()
        self.stopping = threading.Event()
        """Set when the site is about to stop: a copy that it runs ends after its current transaction."""

    def __enter__(self) -> WebBackend:
        reader, watched = self._open(Actor("web", "page")), self._open(Actor("web", "page"))
        self._app = self._opened.enter_context(reader)
        self._opened.enter_context(watched)
        seconds = self.settings.web.refresh_seconds
        self.watch = self._opened.enter_context(Watch({**watched.checks(), **watched.parts()}, seconds=seconds))
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        self._opened.close()

    # The last readings.

    def readings(self) -> dict[str, PartReading]:
        """Every part, as it was last read."""
        return self.watch.readings()

    def flow(self) -> Flow:
        return flow_of({name: reading.current for name, reading in self.readings().items()})

    def part(self, name: str) -> PartReading:
        return self.watch.part(name)

    def status(self) -> Fields:
        """Every part with its age."""
        return {
            name: {**(each.current or {"error": each.trouble}), "age_seconds": round(each.age_seconds, 3)}
            for name, each in self.readings().items()
        }

    def samples(self, part: str, number: str) -> list[Sample]:
        return self.watch.samples(part, number)

    def troubles(self) -> dict[str, str]:
        """What is wrong with each server that is needed; empty text where it works."""
        found = self.readings()
        return {name: found[name].trouble for name in CHECKS}

    # Lists, page by page.

    def exceeded(self, above: int = 0, most: int = 50, **wanted: Any) -> list[Fields]:
        rows = self._app.relay_admin.exceeded_page(above, _bounded(most), **wanted)
        return [exceeded_fields(row) | _followed_as(row.key) for row in rows]

    def exceeded_one(self, id: int) -> Fields | None:
        rows = self._app.relay_admin.exceeded_rows(id=id)
        return whole_exceeded(rows[0]) | _followed_as(rows[0].key) if rows else None

    def exceeded_groups(self, **wanted: Any) -> list[Fields]:
        return group_fields(self._app.relay_admin.exceeded_groups(**wanted))

    def missing(self, above: int = 0, most: int = 50) -> list[Fields]:
        return [missing_fields(each) for each in self._app.relay_admin.missing_page(above, _bounded(most))]

    def letters(self, after: tuple[str, str] | None = None, most: int = 50, **wanted: Any) -> list[Fields]:
        """`after` is pipeline and id of the last letter before the page."""
        behind = LetterPosition() if after is None else letter_position(*after)
        found = self._app.dead_letters.page(behind, _bounded(most), **wanted)
        return [letter_fields(each) | _followed_as(each.key) for each in found]

    def letter_one(self, id: str, pipeline: str | None = None) -> Fields | None:
        wanted = letter_coordinates(id) | ({} if pipeline is None else {"pipeline": pipeline})
        found = self._app.dead_letters.read(1, **wanted)
        return whole_letter(found[0]) | _followed_as(found[0].key) if found else None

    def letter_groups(self, **wanted: Any) -> list[Fields]:
        return group_fields(self._app.dead_letters.groups(**wanted))

    def quarantined(self) -> list[Fields]:
        return [quarantine_fields(each) for each in self._app.journal_admin.quarantined()[:MOST]]

    def quarantined_journals(self) -> list[Fields]:
        """The journals in quarantine, each with its first record and how many there are."""
        found: dict[Key, Fields] = {}
        for each in self._app.journal_admin.quarantined():
            fields = found.setdefault(each.key, {**quarantine_fields(each), "count": 0})
            fields["count"] += 1
        return list(found.values())[:MOST]

    def quarantined_records(self, topic: str, id: str) -> list[Fields]:
        """The records of one journal in quarantine."""
        return [quarantine_fields(each) for each in self._app.journal_admin.quarantined(topic, id)]

    def journal(self, topic: str, id: str, first: int | None = None, most: int = SHOWN_EVENTS) -> Fields:
        """A journal with its last events, or those from a number on."""
        return journal_fields(self._app.journal_lookup.look_up(topic, id, first, most))

    def journal_list(self, topic: str, where: JournalFilter, most: int = 50) -> Fields:
        found, has_more = self._app.journal_lookup.find(topic, where, _bounded(most))
        return {"items": [listed_fields(each) for each in found], "has_more": has_more}

    def topic(self, name: str) -> Fields | None:
        """A topic with its generations, if it was ever switched, by the last reading; None where none is known."""
        part = self.part("topics").part or {}
        found = [each for listed in ("listed", "generations") for each in part.get(listed, ()) if each["topic"] == name]
        return {field: value for each in found for field, value in each.items()} or None

    def topics_plan(self) -> list[Fields]:
        return [{"action": each.kind, "text": str(each)} for each in self._app.topics.plan()]

    def pipeline_plan(self, table: str | None = None) -> list[Fields]:
        return [each.as_dict() for each in self._app.plan_columns(table)]

    def doctor(self) -> list[Fields]:
        return [asdict(each) for each in self._app.examine()]

    def follow(
        self, key: str, topic: str | None = None, *, everywhere: bool = False, before: str | None = None
    ) -> Fields:
        """`before` is where a page of older records ends, as the page behind it names it."""
        place = None if before is None else Before.parse(before)
        return trace_fields(self._app.trace_key(key, topic=topic, everywhere=everywhere, before=place))

    def settings_rows(self) -> list[Fields]:
        """Every setting, secrets masked, with its source."""
        return [asdict(row) for row in self.settings.describe()]

    @property
    def log(self) -> ActionLog:
        return self._app.action_log

    def actions(self, before: str | None = None, most: int = 50) -> list[Action]:
        return self.log.page(most=_bounded(most), **({} if before is None else {"before": before}))

    def action(self, id: str) -> tuple[Action, Outcome] | None:
        """An entry of the log, and what has become of its records by now."""
        found = self.log.read(id)
        return None if found is None else (found, self._app.set_aside.follow_up(found))

    # Actions.

    def count(self, kind: Kind, ids: Sequence[str], wanted: Mapping[str, Any]) -> int:
        """How many records an action would be for."""
        if ids:
            return len(set(ids))
        groups = self.exceeded_groups if kind == "exceeded" else self.letter_groups
        return sum(each["count"] for each in groups(**wanted))

    def preview_count(self, kind: Kind, ids: Sequence[str], wanted: Mapping[str, Any]) -> tuple[int, bool]:
        """How many records an action would be for, and whether that is counted now.

        More than `COUNTED_NOW` are as many as at the last reading, where it knows: to count a million takes longer than
        a page may.
        """
        if ids:
            return len(set(ids)), True
        app, most = self._app, COUNTED_NOW + 1
        counted = (
            app.relay_admin.count_exceeded(most, **wanted)
            if kind == "exceeded"
            else app.dead_letters.count_up_to(most, **wanted)
        )
        if counted < most:
            return counted, True
        last = self.last_count(kind, wanted)
        return (self.count(kind, ids, wanted), True) if last is None else (max(last, counted), False)

    def last_count(self, kind: Kind, wanted: Mapping[str, Any]) -> int | None:
        """How many records matched at the last reading; None where that is not known without counting them now."""
        part, listed = ("relay", "exceeded_groups") if kind == "exceeded" else ("pipeline", "dead_letter_groups")
        groups = (self.part(part).part or {}).get(listed)
        if groups is None or not wanted.keys() <= {"pipeline", "topic", "code"}:
            return None
        return sum(int(each["count"]) for each in groups if all(each.get(name) == wanted[name] for name in wanted))

    def settle(
        self,
        actor: Actor,
        kind: Kind,
        action: Literal["retry", "discard"],
        reason: str,
        *,
        ids: Sequence[str] = (),
        everything: bool = False,
        options: Mapping[str, Any] = NO_OPTIONS,
        **wanted: Any,
    ) -> Logged[Any]:
        """Retries or discards records; see `SetAside`. A reason is always required here.

        `options` are those of a retry of dead letters: `through` and `settles_stale`.
        """
        _require(reason)

        def act(app: App) -> Logged[Any]:
            service = app.set_aside
            if kind == "exceeded":
                numbers = [_number(id) for id in ids]
                return service.settle_exceeded(action, reason, ids=numbers, everything=everything, **wanted)
            if action == "retry":
                return service.retry_letters(reason, ids=ids, everything=everything, **options, **wanted)
            return service.discard_letters(reason, ids=ids, everything=everything, **wanted)

        return self._act(actor, act)

    def settle_journal(
        self,
        actor: Actor,
        action: Literal["release", "discard"],
        topic: str,
        id: str,
        reason: str,
        offset: int | None = None,
    ) -> Logged[int]:
        """Releases or discards the records of a journal in quarantine; `offset` discards one of them."""
        _require(reason)
        key = Key(id, topic)
        if action == "release":
            return self._act(actor, lambda app: app.set_aside.release_journal(key, reason))
        return self._act(actor, lambda app: app.set_aside.discard_journal(key, offset, reason))

    def pause(self, actor: Actor, action: Literal["pause", "resume"], kind: str, name: str, reason: str) -> Logged[Any]:
        """Pauses or resumes a topic, a key, a shard, a table or a job."""
        if action == "pause":
            _require(reason)
        if kind not in set(PauseKind) or not name:
            raise ConfigurationError(f"{kind} {name!r} cannot be paused.", hint=f"There are: {', '.join(PauseKind)}.")
        what = PauseKind(kind)

        def act(app: App) -> Logged[Any]:
            change = app.pause if action == "pause" else app.resume
            return change(what, name, reason=reason)

        return self._act(actor, act)

    def change(self, actor: Actor, reason: str, change: Callable[[LoggedChanges], Logged[Any]]) -> Logged[Any]:
        """Changes topics, shards or columns; see `LoggedChanges`."""
        _require(reason)
        return self._act(actor, lambda app: change(app.changes))

    def count_replay(self, **wanted: Any) -> int:
        """How many kept rows a replay would copy."""
        return self._app.replay_outbox(dry_run=True, **wanted)

    def _act(self, actor: Actor, act: Callable[[App], Logged[Any]]) -> Logged[Any]:
        try:
            with self._open(actor) as app:
                return act(app)
        finally:
            self.watch.wake()


def _require(reason: str) -> None:
    if not reason.strip():
        raise ConfigurationError("A reason is needed; it is kept with the action.", hint="Say why.")


def _followed_as(key: bytes | None) -> Fields:
    """The key as the page Key takes it; `key` is only readable where it is not UTF-8."""
    return {"key_text": None if key is None else key_text(key)}


def _bounded(most: int) -> int:
    return max(1, min(most, MOST))


def _number(id: str) -> int:
    if not (id.isascii() and id.isdigit()):
        raise ConfigurationError(f"{id!r} is not an id of a row.", hint="It is a whole number.")
    return int(id)
