"""Records that were set aside, by the relay, a pipeline or the replicator: settled by any front end, and logged.

One class for the three kinds, because an operator thinks of them together: something did not arrive, why, and retry or
discard it. Lists and counts are those of each product; what happens here is what all front ends must agree on:

- nothing is done to everything unless `everything` says so;
- nothing is discarded without a reason;
- every action is in the log (`actions.py`), with what became of each record.

A retry keeps the order of a key: exceeded rows return to their place before everything that waited for them, dead
letters are applied with the version that they always had, and a journal's records are applied in order or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inorder.journal.replication.store_port import Quarantined
from inorder.journal.service import JournalAdmin
from inorder.model.errors import ConfigurationError
from inorder.model.journal import Key
from inorder.operate.actions import MOST_FATES, Action, ActionLog, Logged, Outcome
from inorder.operate.fields import letter_coordinates, readable
from inorder.pipeline.dead_letters import RetryResult
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin, Through
from inorder.pipeline.stores.ports import SettledLetter
from inorder.relay.status import RelayAdmin
from inorder.relay.stores.exceeded import Action as Settling
from inorder.relay.stores.exceeded import ExceededRow

_FATE = {"retry": "put back", "discard": "discarded"}
_UNDER_NEW_ID = "put back under a new id"
_RETRY = "exceeded retry"


@dataclass(frozen=True, slots=True)
class SetAside:
    """Settles records that were set aside; `wanted` are always the fields of the product's filter."""

    log: ActionLog
    relay: Callable[[], RelayAdmin]
    letters: Callable[[], DeadLetterAdmin]
    journals: Callable[[], JournalAdmin]

    def settle_exceeded(
        self,
        action: Settling,
        reason: str,
        *,
        ids: Sequence[int] = (),
        everything: bool = False,
        **wanted: Any,
    ) -> Logged[list[ExceededRow]]:
        """Retries or discards refused records: some by their ids, one after the other, or all that match at once."""
        _require(action, reason, bool(ids or wanted) or everything)
        admin, settled = self.relay(), list[ExceededRow]()

        def act() -> list[ExceededRow]:
            for one in [{"id": id} for id in sorted(set(ids))] or [wanted]:
                settled.extend(admin.settle_exceeded(action, reason, **one))
            return settled

        def describe(rows: list[ExceededRow]) -> Outcome:
            fates = [
                {"id": row.id, "topic": row.topic, "key": readable(row.key), "fate": fate_of(row), "detail": ""}
                for row in rows
            ]
            return Outcome(Counter(map(fate_of, rows)), fates)

        def fate_of(row: ExceededRow) -> str:
            return _UNDER_NEW_ID if action == "retry" and row.returns_renumbered else _FATE[action]

        target = {"ids": list(ids)} if ids else _target(wanted)
        name = _RETRY if action == "retry" else "exceeded discard"
        return self.log.record(name, target, reason, act, describe, lambda: settled)

    def retry_letters(
        self,
        reason: str,
        *,
        ids: Sequence[str] = (),
        everything: bool = False,
        through: Through = "table",
        settles_stale: bool = False,
        **wanted: Any,
    ) -> Logged[list[RetryResult]]:
        """Applies rejected records late; each one that is reported is settled."""
        _require("retry", reason, bool(ids or wanted) or everything)
        admin, chosen, results = self.letters(), _each_letter(ids, wanted), list[RetryResult]()

        def act() -> list[RetryResult]:
            for one in chosen:
                for each in admin.retry(reason, through=through, settles_stale=settles_stale, **one):
                    results.append(each)  # at once: those before an error are settled and count
            return results

        def describe(retried: list[RetryResult]) -> Outcome:
            fates = [
                {"id": one.id, "pipeline": one.pipeline, "fate": one.fate.value, "detail": one.detail}
                for one in retried
            ]
            return Outcome(Counter(one.fate.value for one in retried), fates)

        target = {"ids": list(ids)} if ids else {}
        return self.log.record("dead letters retry", target | _target(wanted), reason, act, describe, lambda: results)

    def discard_letters(
        self, reason: str, *, ids: Sequence[str] = (), everything: bool = False, **wanted: Any
    ) -> Logged[int]:
        """Discards rejected records; returns how many there were."""
        _require("discard", reason, bool(ids or wanted) or everything)
        admin, chosen, discarded = self.letters(), _each_letter(ids, wanted), _Discarded()

        def act() -> _Discarded:
            for one in chosen:
                count, listed = admin.discard_listed(reason, MOST_FATES - len(discarded.letters), **one)
                discarded.count += count
                discarded.letters += listed
            return discarded

        def describe(done: _Discarded) -> Outcome:
            fates = [
                {
                    "id": one.id,
                    "pipeline": one.pipeline,
                    "key": readable(one.key),
                    "fate": _FATE["discard"],
                    "detail": one.code,
                }
                for one in done.letters
            ]
            return Outcome({_FATE["discard"]: done.count}, fates)

        target = {"ids": list(ids)} if ids else {}
        logged = self.log.record(
            "dead letters discard", target | _target(wanted), reason, act, describe, lambda: discarded
        )
        return Logged(logged.id, logged.result.count)

    def follow_up(self, action: Action) -> Outcome:
        """What has become of the records of an action by now.

        A row that was put back waits in the outbox, has arrived in Kafka, was refused again or was discarded after
        that. One that no other row waited for has a new id, and is not followed. All other fates are final.
        """
        outcome = action.result
        ids = [each["id"] for each in outcome.fates if each["fate"] == _FATE["retry"]]
        if action.action != _RETRY or not ids:
            return outcome
        now = self.relay().retried_exceeded(ids)
        fates = [{**each, "fate": now.get(each["id"], each["fate"])} for each in outcome.fates]
        # Of a larger action the entry has only the first fates.
        left = Counter(outcome.counts) - Counter(each["fate"] for each in outcome.fates)
        return replace(outcome, counts=Counter(each["fate"] for each in fates) + left, fates=fates)

    def release_journal(self, key: Key, reason: str = "") -> Logged[int]:
        """Applies the records of a journal in quarantine, all or none; returns how many."""
        return self._settle_journal(
            "quarantine release", key, None, reason, "released", lambda: self.journals().release(key)
        )

    def discard_journal(self, key: Key, offset: int | None = None, reason: str = "") -> Logged[int]:
        """Discards one record of a journal in quarantine, or all; returns how many."""
        return self._settle_journal(
            "quarantine discard", key, offset, reason, "discarded", lambda: self.journals().discard(key, offset)
        )

    def _settle_journal(
        self, action: str, key: Key, offset: int | None, reason: str, fate: str, act: Callable[[], int]
    ) -> Logged[int]:
        target = {"topic": key.topic, "id": key.id} | ({} if offset is None else {"offset": offset})

        def list_and_act() -> tuple[int, list[Quarantined]]:
            listed = [each for each in self.journals().quarantined(key.topic, key.id) if offset in (None, each.offset)]
            return act(), listed

        def describe(done: tuple[int, list[Quarantined]]) -> Outcome:
            count, listed = done
            fates = [
                {
                    "id": f"{key.topic}:{each.partition}:{each.offset}",
                    "topic": key.topic,
                    "key": key.id,
                    "fate": fate,
                    "detail": each.reason,
                }
                for each in listed
            ]
            # A record may have come in between; then only the number is known.
            return Outcome({fate: count}, fates if len(fates) == count else ())

        logged = self.log.record(action, target, reason, list_and_act, describe)
        return Logged(logged.id, logged.result[0])


@dataclass(slots=True)
class _Discarded:
    """So far: some letters are discarded one after the other."""

    count: int = 0
    letters: list[SettledLetter] = field(default_factory=list)


def _require(action: str, reason: str, is_chosen: bool) -> None:
    if not is_chosen:
        raise ConfigurationError(f"Nothing says which records to {action}.", hint="Name them, filter, or say all.")
    if action == "discard" and not reason.strip():
        raise ConfigurationError("A reason is needed to discard records: they are deleted.", hint="Say why.")


def _each_letter(ids: Sequence[str], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**wanted, **letter_coordinates(id)} for id in ids] if ids else [dict(wanted)]


def _target(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: readable(value) if isinstance(value, bytes) else value for name, value in wanted.items()}
