"""The flow of events at a glance: each hop with its health and one sentence, and what needs attention, worst first.

Pure decisions on the parts of the status (`status.py`): the same answer for pages, API and anything that comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any, Final, Literal, TypeAlias

from inorder.operate.status import Part
from inorder.topics.generations import Phase

Health = Literal["ok", "attention", "trouble", "unknown", "unused"]
"""`unknown` was not read yet; `unused` is not set up, or nothing went through it."""

LATE_SECONDS: Final = 60.0
"""What waits longer needs attention."""
_NOT_SET_UP: Final = 3
"""The exit code of a wrong or missing setting."""
_WORST_FIRST: Final = ("trouble", "attention", "unknown", "ok", "unused")


@dataclass(frozen=True, slots=True)
class FlowHop:
    """One hop of the path."""

    name: str
    title: str
    health: Health
    sentence: str
    waiting: int | None = None
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that a person should look at."""

    health: Health
    sentence: str
    page: str
    """Where to look."""
    command: str
    """What to run at a terminal instead."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The whole path."""

    health: Health
    sentence: str
    hops: tuple[FlowHop, ...]
    concerns: tuple[Concern, ...]


def flow_of(parts: Mapping[str, Part | None]) -> Flow:
    """The flow by the last readings; None is a part that was not read yet."""
    hops = (
        _hop("outbox", "Outbox", parts.get("relay"), _outbox),
        _hop("relay", "Relay", parts.get("relay"), _relay),
        _hop("kafka", "Kafka", parts.get("kafka"), _kafka),
        _hop("pipeline", "Tables", parts.get("pipeline"), _pipeline),
        _hop("journal", "Journals", parts.get("journal"), _journal),
    )
    found = sorted(_concerns(parts), key=lambda each: _WORST_FIRST.index(each.health))
    health = _worst([*(hop.health for hop in hops), *(concern.health for concern in found)])
    return Flow(health, _summary(hops, found), hops, tuple(found))


def _worst(healths: Sequence[Health]) -> Health:
    return min(healths, key=_WORST_FIRST.index)


def _summary(hops: Sequence[FlowHop], concerns: Sequence[Concern]) -> str:
    if concerns:
        return concerns[0].sentence if len(concerns) == 1 else f"{len(concerns)} things need attention."
    if any(hop.health == "unknown" for hop in hops):
        return "Some hops are not known yet."
    waiting = sum(hop.waiting or 0 for hop in hops if hop.name != "relay")
    return f"Events flow; {counted(waiting, 'event')} on the way." if waiting else "All events have arrived."


# Each hop.


def _hop(name: str, title: str, part: Part | None, look: Callable[[New, Part], FlowHop]) -> FlowHop:
    new = partial(FlowHop, name, title)
    if part is None:
        return new("unknown", "Not read yet.")
    if "error" in part:
        return new("unused" if part.get("exit_code") == _NOT_SET_UP else "trouble", str(part["error"]))
    return look(new, part)


New: TypeAlias = Callable[..., FlowHop]
"""A hop with its name and title; what remains is its health, a sentence, what waits and since when."""


def _outbox(new: New, part: Part) -> FlowHop:
    waiting, oldest = int(part["waiting"]), float(part["oldest_seconds"])
    if not waiting:
        return new("ok", f"Nothing waits in {part['table']!r}.", 0)
    health: Health = "attention" if oldest > LATE_SECONDS else "ok"
    sentence = f"{counted(waiting, 'row')} in {part['table']!r}, the oldest for {duration(oldest)}."
    return new(health, sentence, waiting, oldest)


def _relay(new: New, part: Part) -> FlowHop:
    resting = open_breakers(part)
    exceeded = int(part.get("exceeded", 0))
    if resting:
        return new("trouble", f"The circuit breaker of {' and '.join(resting)} is open.", exceeded)
    if exceeded:
        return new("trouble", f"{counted(exceeded, 'record')} set aside.", exceeded)
    owners = [owner for owner in part.get("owners", []) if owner]
    if part["strategy"] == "topic-lock":
        return new("ok", f"{part['workers']} workers share the topics.", 0)
    shards = int(part.get("shards", 1))
    if not owners:
        return new("ok", f"Group {part['group']}; no owner is known.", 0)
    owned = f"{owners[0]} leads" if shards == 1 else f"{len(owners)} of {shards} shards have an owner"
    health: Health = "ok" if len(owners) == shards else "attention"
    return new(health, f"{owned}, group {part['group']}.", 0)


def _kafka(new: New, part: Part) -> FlowHop:
    return new("ok", f"{counted(len(part['brokers']), 'broker')}: {', '.join(part['brokers'])}.")


def _pipeline(new: New, part: Part) -> FlowHop:
    if not part["partitions"]:
        return new("unused", "No topic of a table exists yet.")
    behind, oldest = int(part["behind"]), part["oldest_seconds"]
    if part["waiting"]:
        return new("trouble", f"{counted(len(part['waiting']), 'partition')} wait.", behind, oldest)
    if not behind:
        letters = int(part["dead_letters"])
        health: Health = "attention" if letters else "ok"
        sentence = f"Applied to the end; {counted(letters, 'dead letter')}." if letters else "Applied to the end."
        return new(health, sentence, 0)
    late = oldest is not None and oldest > LATE_SECONDS
    since = "" if oldest is None else f", the oldest for {duration(oldest)}"
    return new("attention" if late else "ok", f"{counted(behind, 'offset')} behind{since}.", behind, oldest)


def _journal(new: New, part: Part) -> FlowHop:
    if not part["topics"]:
        return new("unused", "No topic holds journals.")
    behind, parked = int(part["behind"]), int(part["parked"])
    if parked:
        return new("attention", f"{counted(parked, 'journal')} in quarantine.", behind)
    sentence = f"The store is {counted(behind, 'record')} behind." if behind else "The store has every record."
    return new("ok", sentence, behind)


def open_breakers(part: Mapping[str, Any]) -> list[str]:
    """The daemons of the relay that wait for a circuit breaker."""
    return [daemon for daemon, state in (part.get("breakers") or {}).items() if state == "open"]


# What is held: paused by an operator, or waiting by itself.


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Something that does not move, why, and the command that ends it or says more."""

    state: Literal["paused", "switched", "rests"]
    kind: str
    name: str
    reason: str
    command: str


def held(parts: Mapping[str, Part | None]) -> list[HeldUp]:
    """What is paused, then the topics whose rows wait for a switch, or rest after an error (strategy `topic-lock`).

    A topic that another strategy cannot write is known only to the relay itself, which logs `relay.topic_waits`.
    """
    topics, relay = parts.get("topics") or {}, parts.get("relay") or {}
    paused = ((*what.partition(" ")[::2], why) for what, why in topics.get("paused", {}).items())
    found = [HeldUp("paused", kind, name, why, f"inorder resume {kind} {quote(name)}") for kind, name, why in paused]
    found += [
        HeldUp(
            "switched",
            "topic",
            each["topic"],
            f"It is being switched to {each['target']!r}: {each['phase']}. Its rows wait, and continue by themselves.",
            f"inorder topics status {quote(each['topic'])}",
        )
        for each in topics.get("generations", ())
        if each["phase"] in _HOLDING
    ]
    found += [
        HeldUp(
            "rests",
            "topic",
            each["topic"],
            f"It rests after {counted(each['retries'], 'error')}; {counted(each['messages'], 'message')} in the outbox."
            " A worker tries again after relay.topic_lock.lock_seconds.",
            "inorder relay status",
        )
        for each in relay.get("topics", ())
        if each["error"]
    ]
    return found


_HOLDING: Final = (Phase.CLOSING, Phase.MEASURING)
"""Phases of a switch in which a topic takes no records."""


# What needs attention.


def _concerns(parts: Mapping[str, Part | None]) -> Iterator[Concern]:
    read = {name: part for name, part in parts.items() if part is not None}
    for name, part in read.items():
        if "error" in part:
            is_open = part.get("exit_code") == _NOT_SET_UP
            yield Concern("unknown" if is_open else "trouble", f"{name}: {part['error']}", name, "inorder doctor")
    good = {name: part for name, part in read.items() if "error" not in part}
    yield from _of_relay(good.get("relay", {}))
    yield from _of_pipeline(good.get("pipeline", {}))
    if parked := good.get("journal", {}).get("parked"):
        sentence = f"{counted(parked, 'journal')} in quarantine: reads of them are refused."
        yield Concern("trouble", sentence, "problems", "inorder journal quarantine list")
    for what, why in good.get("topics", {}).get("paused", {}).items():
        kind, _, name = what.partition(" ")
        yield Concern("attention", f"The {what} is paused: {why}.", "topics", f"inorder resume {kind} {quote(name)}")
    for topic in good.get("topics", {}).get("generations", []):
        if topic["target"]:
            sentence = f"Topic {topic['topic']!r} is being switched to {topic['target']!r}: {topic['phase']}."
            yield Concern("attention", sentence, "topics", f"inorder topics status {topic['topic']}")


def _of_relay(part: Mapping[str, Any]) -> Iterator[Concern]:
    if resting := open_breakers(part):
        sentence = f"The circuit breaker of {' and '.join(resting)} is open: the relay rests."
        yield Concern("trouble", sentence, "relays", "inorder relay status")
    if exceeded := part.get("exceeded"):
        sentence = f"{counted(exceeded, 'record')} used up {'its' if exceeded == 1 else 'their'} attempts."
        yield Concern("trouble", sentence, "problems", "inorder exceeded list")
    if (oldest := part.get("oldest_seconds") or 0) > LATE_SECONDS:
        sentence = f"The oldest row of the outbox waits for {duration(oldest)}: does a relay run?"
        yield Concern("attention", sentence, "relays", "inorder relay status")
    if phantoms := part.get("phantoms"):
        sentence = f"The database lost rows that were published: ids {phantoms}."
        yield Concern("attention", sentence, "relays", "inorder relay status")


def _of_pipeline(part: Mapping[str, Any]) -> Iterator[Concern]:
    for each in part.get("waiting", []):
        sentence = f"{each['topic']}[{each['partition']}] waits: {each['reason']}"
        yield Concern("trouble", sentence, "pipeline", "inorder pipeline status")
    if letters := part.get("dead_letters"):
        sentence = f"{counted(letters, 'record')} could not be applied and {'is' if letters == 1 else 'are'} set aside."
        yield Concern("attention", sentence, "problems", "inorder dead-letters list")
    if (oldest := part.get("oldest_seconds") or 0) > LATE_SECONDS:
        sentence = f"The oldest record of the tables waits for {duration(oldest)}: does the job upsert run?"
        yield Concern("attention", sentence, "pipeline", "inorder pipeline status")


def counted(count: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def duration(seconds: float) -> str:
    """A duration for people: two units at most.

    >>> duration(0.2), duration(75), duration(7200), duration(90_000)
    ('0.2 s', '1 min 15 s', '2 h', '1 d 1 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
