"""The pages: each a view of what the backend returns, with a URL of its own. They work without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final, Literal, cast

from inorder.model.errors import ConfigurationError
from inorder.operate.actions import Actor
from inorder.operate.fields import action_fields, whole_action
from inorder.operate.flow import held
from inorder.operate.journals import SHOWN_EVENTS
from inorder.operate.watch import Sample
from inorder.web.access import User
from inorder.web.api import NotFoundError, filter_of, names_of, number_of
from inorder.web.backend import Kind, WebBackend

PAGE_ROWS: Final = 50
PREVIEW_ROWS: Final = 10
SHOWN_FATES: Final = 500
LONGEST_VALUE: Final = 20_000
LONGEST_PAYLOAD: Final = 2_000

NAVIGATION: Final = (
    ("/", "Flow"),
    ("/key", "Key"),
    ("/problems", "Problems"),
    ("/relays", "Relays"),
    ("/topics", "Topics"),
    ("/pipeline", "Pipeline"),
    ("/journals", "Journals"),
    ("/settings", "Settings"),
    ("/actions", "Actions"),
)

Params = Mapping[str, list[str]]
"""Every value of each parameter of a query or a form."""


@dataclass(frozen=True, slots=True)
class View:
    """A template with its values, or a place to go to."""

    template: str = ""
    values: Mapping[str, Any] | None = None
    status: HTTPStatus = HTTPStatus.OK
    location: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page."""

    backend: WebBackend
    user: User
    path: Mapping[str, str]
    params: Params

    def text(self, name: str) -> str:
        found = self.params.get(name) or [""]
        return found[0]

    @property
    def flat(self) -> dict[str, str]:
        return {name: values[0] for name, values in self.params.items()}

    @property
    def kind(self) -> Kind:
        kind = self.path.get("kind") or self.text("kind")
        if kind not in ("exceeded", "dead-letters"):
            raise NotFoundError("There is no such kind of problem.")
        return cast("Kind", kind)

    def one_of(self, name: str, *allowed: str) -> str:
        """A parameter that must be one of these."""
        if (found := self.text(name)) not in allowed:
            raise ConfigurationError(f"{name} = {found!r} is not known.")
        return found


def flow(visit: Visit) -> View:
    backend = visit.backend
    came = [backend.samples(part, "ends") for part in ("pipeline", "journal")]
    rates = {
        "kafka": _sum_known(_rate(each) for each in came),
        "pipeline": _rate(backend.samples("pipeline", "applied")),
        "journal": _rate(backend.samples("journal", "replicated")),
    }
    charts = [
        ("Records a second into Kafka", rates_of(came[0])),
        ("Rows in the outbox", backend.samples("relay", "waiting")),
        ("Offsets that tables are behind", backend.samples("pipeline", "behind")),
        ("Records that journals are behind", backend.samples("journal", "behind")),
    ]
    ages = [each.age_seconds for each in backend.readings().values() if each.part is not None]
    # Of journals only where there are some: most have none.
    shown = charts if came[1] else charts[:-1]
    return View("flow.html", {"flow": backend.flow(), "charts": shown, "age": max(ages, default=None), "rates": rates})


def _rate(samples: Sequence[Sample]) -> float | None:
    """Records a second over the last samples; None where that is not known, or the counter went back."""
    recent = samples[-12:]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0] or recent[-1][1] < recent[0][1]:
        return None
    return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])


def _sum_known(rates: Iterable[float | None]) -> float | None:
    known = [each for each in rates if each is not None]
    return sum(known) if known else None


def rates_of(samples: Sequence[Sample]) -> list[Sample]:
    """How fast a counter rose up to each sample; none where it went back, because it was reset."""
    return [
        (later[0], (later[1] - earlier[1]) / (later[0] - earlier[0]))
        for earlier, later in pairwise(samples)
        if later[1] >= earlier[1] and later[0] > earlier[0]
    ]


def key(visit: Visit) -> View:
    wanted, topic, everywhere = visit.text("key"), visit.text("topic"), visit.text("all_partitions") == "1"
    before = visit.text("before") or None
    trace = visit.backend.follow(wanted, topic or None, everywhere=everywhere, before=before) if wanted else None
    asked = {"key": wanted, "topic": topic, "all_partitions": "1" if everywhere else ""}
    values = {"key": wanted, "topic": topic, "everywhere": everywhere, "before": before, "asked": asked}
    return View("key.html", {**values, "trace": trace})


def problems(visit: Visit) -> View:
    relay, pipeline, journal, topics = map(visit.backend.part, ("relay", "pipeline", "journal", "topics"))
    parked = (journal.part or {}).get("parked", 0)
    return View(
        "problems.html",
        {
            "relay": relay,
            "pipeline": pipeline,
            "journal": journal,
            "topics": topics,
            "held": held({"relay": relay.part, "topics": topics.part}),
            "quarantined": visit.backend.quarantined_journals() if parked else [],
        },
    )


def records(visit: Visit) -> View:
    """A list of one kind, filtered."""
    kind = visit.kind
    wanted = filter_of(visit.flat, names_of(kind))
    if kind == "exceeded":
        rows = visit.backend.exceeded(number_of(visit.flat, "after", 0), PAGE_ROWS, **wanted)
    else:
        after = (visit.text("after_pipeline"), visit.text("after")) if visit.text("after") else None
        rows = visit.backend.letters(after, PAGE_ROWS, **wanted)
    following = None
    if len(rows) == PAGE_ROWS:
        following = _kept(visit, kind) | {"after": rows[-1]["id"], "after_pipeline": rows[-1].get("pipeline")}
    # Counting a million rows takes longer than a page may take; the preview of an action counts exactly.
    count = visit.backend.last_count(kind, wanted)
    return View(
        "records.html", {"kind": kind, "rows": rows, "next": following, "filter": _kept(visit, kind), "count": count}
    )


def record(visit: Visit) -> View:
    """One record with its value and headers."""
    kind, id = visit.kind, visit.path["id"]
    if kind == "exceeded":
        found = visit.backend.exceeded_one(number_of(visit.path, "id", 0))
    else:
        found = visit.backend.letter_one(id, visit.text("pipeline") or None)
    if found is None:
        raise NotFoundError(f"There is no record {id} any more: it was settled.")
    return View("record.html", {"kind": kind, "record": found, "longest": LONGEST_VALUE})


def missing(visit: Visit) -> View:
    rows = visit.backend.missing(number_of(visit.flat, "after", 0), PAGE_ROWS)
    following = {"after": rows[-1]["id"]} if len(rows) == PAGE_ROWS else None
    return View("missing.html", {"rows": rows, "next": following})


def review(visit: Visit) -> View:
    """How many records an action is for, and the first of them, before it is done."""
    if visit.text("kind") == "quarantine":
        return _review_journal(visit)
    kind, action = visit.kind, visit.one_of("action", "retry", "discard")
    ids, wanted = visit.params.get("id", []), filter_of(visit.flat, names_of(kind))
    if not (ids or wanted or visit.text("all") == "1"):
        raise ConfigurationError("No record is chosen.", hint="Go back, and choose some or all of them.")
    count, is_exact = visit.backend.preview_count(kind, ids, wanted)
    rows = []
    if not ids:
        backend = visit.backend
        rows = (
            backend.exceeded(0, PREVIEW_ROWS, **wanted)
            if kind == "exceeded"
            else backend.letters(None, PREVIEW_ROWS, **wanted)
        )
    return View(
        "review.html",
        {
            "kind": kind,
            "action": action,
            "ids": ids,
            "filter": _kept(visit, kind),
            "all": visit.text("all"),
            "count": count,
            "is_exact": is_exact,
            "rows": rows,
        },
    )


def _review_journal(visit: Visit) -> View:
    topic, id = visit.text("topic"), visit.text("id")
    found = visit.backend.quarantined_records(topic, id)
    rows = [
        {"id": each["offset"], "key": each["id"], "code": "", "detail": each["reason"]} for each in found[:PREVIEW_ROWS]
    ]
    return View(
        "review.html",
        {
            "kind": "quarantine",
            "action": visit.one_of("action", "release", "discard"),
            "ids": [],
            "filter": {"topic": topic, "id": id},
            "all": "",
            "count": len(found),
            "is_exact": True,
            "rows": rows,
        },
    )


def act(visit: Visit) -> View:
    """Does what was reviewed, then shows the entry of the log."""
    actor = Actor(visit.user.name, "page")
    if visit.text("kind") == "quarantine":
        action = cast("Literal['release', 'discard']", visit.one_of("action", "release", "discard"))
        topic, id, reason = visit.text("topic"), visit.text("id"), visit.text("reason")
        return View(location=f"/actions/{visit.backend.settle_journal(actor, action, topic, id, reason).id}")
    if visit.text("kind") == "pause":
        change = cast("Literal['pause', 'resume']", visit.one_of("action", "pause", "resume"))
        what, name, reason = visit.text("what"), visit.text("name"), visit.text("reason")
        return View(location=f"/actions/{visit.backend.pause(actor, change, what, name, reason).id}")
    kind, settling = visit.kind, cast("Literal['retry', 'discard']", visit.one_of("action", "retry", "discard"))
    logged = visit.backend.settle(
        actor,
        kind,
        settling,
        visit.text("reason"),
        ids=visit.params.get("id", []),
        everything=visit.text("all") == "1",
        **filter_of(visit.flat, names_of(kind)),
    )
    return View(location=f"/actions/{logged.id}")


def _kept(visit: Visit, kind: Kind) -> dict[str, Any]:
    return {name: visit.text(name) for name in names_of(kind) if visit.text(name)}


def _of_part(template: str, part: str) -> Callable[[Visit], View]:
    def show(visit: Visit) -> View:
        reading = visit.backend.part(part)
        return View(template, {"part": reading.part or {}, "trouble": reading.trouble, "age": reading.age_seconds})

    return show


def journal(visit: Visit) -> View:
    """One journal: its pointer, what the store has of it, and its events; read when you ask, not again by itself."""
    topic, id, first = visit.text("topic"), visit.text("id"), number_of(visit.flat, "from", 0) or None
    found = visit.backend.journal(topic, id, first) if topic and id else None
    earlier = None
    if found is not None and found["from"] > (found["delete_to"] or 0) + 1:
        earlier = max(1, found["from"] - SHOWN_EVENTS)
    values = {"topic": topic, "id": id, "journal": found, "earlier": earlier, "longest": LONGEST_PAYLOAD}
    return View("journal.html", values)


def settings(visit: Visit) -> View:
    rows = visit.backend.settings_rows()
    return View("settings.html", {"rows": rows, "set": [row for row in rows if row["source"] != "default"]})


def actions(visit: Visit) -> View:
    found = [action_fields(each) for each in visit.backend.actions(visit.text("before") or None, PAGE_ROWS)]
    following = {"before": found[-1]["id"]} if len(found) == PAGE_ROWS else None
    return View("actions.html", {"actions": found, "next": following})


def action(visit: Visit) -> View:
    """What an action did, and what has become of its records by now; filtered by that, page by page."""
    found = visit.backend.action(visit.path["id"])
    if found is None:
        raise NotFoundError("There is no such action.")
    fields, wanted, first = whole_action(*found), visit.text("now"), number_of(visit.flat, "from", 0)
    fates = [each for each in fields["result"]["fates"] if wanted in ("", each["now"])]
    following = {"now": wanted, "from": first + SHOWN_FATES} if len(fates) > first + SHOWN_FATES else None
    values = {"action": fields, "shown": fates[first : first + SHOWN_FATES], "first": first, "fates": len(fates)}
    return View("action.html", {**values, "wanted": wanted, "next": following})


PAGES: Final[tuple[tuple[str, str, Callable[[Visit], View]], ...]] = (
    ("GET", "/", flow),
    ("GET", "/key", key),
    ("GET", "/problems", problems),
    ("GET", "/problems/missing", missing),
    ("GET", "/problems/review", review),
    ("POST", "/problems/act", act),
    ("GET", "/problems/{kind}", records),
    ("GET", "/problems/{kind}/{id}", record),
    ("GET", "/relays", _of_part("relays.html", "relay")),
    ("GET", "/topics", _of_part("topics.html", "topics")),
    ("GET", "/pipeline", _of_part("pipeline.html", "pipeline")),
    ("GET", "/journals", _of_part("journals.html", "journal")),
    ("GET", "/journals/one", journal),
    ("GET", "/settings", settings),
    ("GET", "/actions", actions),
    ("GET", "/actions/{id}", action),
)
