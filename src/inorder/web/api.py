"""The HTTP API, `/api/v1/…`: every route in one table, from which its OpenAPI document is made too.

Answers have the fields that the commands print with `--json`. A list has at most `limit` items, and `next` has the
parameters of the page behind it. Errors are `{"error": {"code", "message", "hint"}}`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Any, Final, Literal

from inorder.journal.stores.ports import JournalFilter
from inorder.model.errors import ConfigurationError, InorderError, TransientError
from inorder.operate.actions import Actor, Logged
from inorder.operate.changes import LoggedChanges
from inorder.operate.fields import action_fields, whole_action
from inorder.operate.journals import SHOWN_EVENTS
from inorder.web.access import User
from inorder.web.answers import answer_schema
from inorder.web.backend import Fields, Kind, WebBackend

PREFIX: Final = "/api/v1"
LIMIT: Final = 50

_EXCEEDED: Final = ("topic", "key", "code")
_LETTERS: Final = ("pipeline", "topic", "partition", "offset", "code", "key")
_NUMBERS: Final = frozenset({"partition", "offset"})
_THROUGH: Final = ("table", "topic")


class NotFoundError(ConfigurationError):
    """There is no such thing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the API."""

    backend: WebBackend
    user: User
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def actor(self) -> Actor:
        return Actor(self.user.name, "api")

    @property
    def limit(self) -> int:
        return number_of(self.query, "limit", LIMIT)


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One operation."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    answer: Callable[[Asked], Any]
    parameters: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    required: tuple[str, ...] = ("reason",)
    """Fields of the body that it cannot do without."""


def status_of(error: InorderError) -> HTTPStatus:
    """The HTTP status of an error."""
    match error:
        case NotFoundError():
            return HTTPStatus.NOT_FOUND
        case ConfigurationError():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case TransientError():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.CONFLICT


def error_fields(error: InorderError) -> Fields:
    return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}


def number_of(given: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of the query or body."""
    value = given.get(name, default)
    try:
        if isinstance(value, bool | float):
            raise TypeError
        return int(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} = {value!r} is not a whole number.") from None


def filter_of(given: Mapping[str, Any], names: Sequence[str]) -> Fields:
    """The filter of a list or an action: what was given of these fields."""
    found: Fields = {}
    for name in names:
        value = given.get(name)
        if value in (None, ""):
            continue
        if name in _NUMBERS:
            found[name] = number_of(given, name, 0)
        elif not isinstance(value, str):
            raise ConfigurationError(f"{name} = {value!r} is not text.")
        else:
            found[name] = value.encode() if name == "key" else value
    return found


def names_of(kind: Kind) -> Sequence[str]:
    """The fields by which records of a kind are filtered."""
    return _EXCEEDED if kind == "exceeded" else _LETTERS


def _page(items: list[Fields], limit: int, following: Callable[[Fields], Fields]) -> Fields:
    return {"items": items, "next": following(items[-1]) if len(items) >= limit else None}


def _exceeded(asked: Asked) -> Fields:
    found = asked.backend.exceeded(number_of(asked.query, "after", 0), asked.limit, **filter_of(asked.query, _EXCEEDED))
    return _page(found, asked.limit, lambda last: {"after": last["id"]})


def _exceeded_one(asked: Asked) -> Fields:
    return _found(asked.backend.exceeded_one(number_of(asked.path, "id", 0)), "exceeded record")


def _missing(asked: Asked) -> Fields:
    found = asked.backend.missing(number_of(asked.query, "after", 0), asked.limit)
    return _page(found, asked.limit, lambda last: {"after": last["id"]})


def _letters(asked: Asked) -> Fields:
    query = asked.query
    after = (query.get("after_pipeline", ""), query["after"]) if query.get("after") else None
    found = asked.backend.letters(after, asked.limit, **filter_of(query, _LETTERS))
    return _page(found, asked.limit, lambda last: {"after": last["id"], "after_pipeline": last["pipeline"]})


def _letter(asked: Asked) -> Fields:
    return _found(asked.backend.letter_one(asked.path["id"], asked.query.get("pipeline")), "dead letter")


def _key(asked: Asked) -> Fields:
    key = asked.query.get("key", "")
    if not key:
        raise ConfigurationError("The parameter `key` is missing.")
    everywhere = asked.query.get("all_partitions", "") in ("1", "true")
    topic, before = asked.query.get("topic") or None, asked.query.get("before") or None
    return asked.backend.follow(key, topic, everywhere=everywhere, before=before)


def _topic(asked: Asked) -> Fields:
    return _found(asked.backend.topic(asked.path["name"]), "topic")


def _journal(asked: Asked) -> Fields:
    first = number_of(asked.query, "from", 0) or None
    limit = number_of(asked.query, "limit", SHOWN_EVENTS)
    return asked.backend.journal(_required(asked, "topic"), _required(asked, "id"), first, limit)


def _journal_list(asked: Asked) -> Fields:
    days = {name: _day(asked.query[name], name) for name in ("created", "expires") if asked.query.get(name)}
    where = JournalFilter(asked.query.get("origin") or None, **days)
    return asked.backend.journal_list(_required(asked, "topic"), where, asked.limit)


def _required(asked: Asked, name: str) -> str:
    if not (found := asked.query.get(name, "")):
        raise ConfigurationError(f"The parameter `{name}` is missing.")
    return found


def _day(text: str, name: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name} = {text!r} is not a day.", hint="Write it as 2026-01-31.") from None


def _actions(asked: Asked) -> Fields:
    found = [action_fields(each) for each in asked.backend.actions(asked.query.get("before"), asked.limit)]
    return _page(found, asked.limit, lambda last: {"before": last["id"]})


def _action(asked: Asked) -> Fields:
    found = asked.backend.action(asked.path["id"])
    return _found(None if found is None else whole_action(*found), "action")


def _found(fields: Fields | None, what: str) -> Fields:
    if fields is None:
        raise NotFoundError(f"There is no such {what}.")
    return fields


def _settle(kind: Kind, action: Literal["retry", "discard"]) -> Callable[[Asked], Fields]:
    def settle(asked: Asked) -> Fields:
        body = asked.body
        ids, wanted = _ids(body), filter_of(body, names_of(kind))
        if body.get("dry_run") is True:
            return {"count": asked.backend.count(kind, ids, wanted), "dry_run": True}
        logged = asked.backend.settle(
            asked.actor,
            kind,
            action,
            str(body.get("reason", "")),
            ids=ids,
            everything=body.get("all") is True,
            options=_retry_options(body) if (kind, action) == ("dead-letters", "retry") else {},
            **wanted,
        )
        return _result(asked.backend, logged.id)

    return settle


def _retry_options(body: Mapping[str, Any]) -> Fields:
    """What `inorder dead-letters retry` has beside the filter, as far as it is given."""
    options: Fields = {}
    if (through := body.get("through")) is not None:
        if through not in _THROUGH:
            raise ConfigurationError(f"through = {through!r} is not known.", hint=f"There are: {', '.join(_THROUGH)}.")
        options["through"] = through
    if body.get("settle_stale") is True:
        options["settles_stale"] = True
    return options


def _settle_journal(action: Literal["release", "discard"]) -> Callable[[Asked], Fields]:
    def settle(asked: Asked) -> Fields:
        topic, id, reason = (str(asked.body.get(name, "")) for name in _JOURNAL)
        offset = filter_of(asked.body, ("offset",)).get("offset") if action == "discard" else None
        logged = asked.backend.settle_journal(asked.actor, action, topic, id, reason, offset)
        return _result(asked.backend, logged.id)

    return settle


def _pause(action: Literal["pause", "resume"]) -> Callable[[Asked], Fields]:
    def pause(asked: Asked) -> Fields:
        kind, name, reason = (str(asked.body.get(each, "")) for each in _PAUSE)
        return _result(asked.backend, asked.backend.pause(asked.actor, action, kind, name, reason).id)

    return pause


Change = Callable[[LoggedChanges, str, Asked], Logged[Any]]


def _change(change: Change) -> Callable[[Asked], Fields]:
    """Does it and answers with its entry of the log; the request lasts as long as the change does."""

    def act(asked: Asked) -> Fields:
        reason = _text(asked, "reason") or ""
        return _result(
            asked.backend, asked.backend.change(asked.actor, reason, lambda to: change(to, reason, asked)).id
        )

    return act


def _fail_over(changes: LoggedChanges, reason: str, asked: Asked) -> Logged[Any]:
    topic, partitions, to = _named(asked, "topic"), _whole(asked, "partitions", 1), _text(asked, "to")
    if asked.body.get("cancel") is True:
        return changes.cancel_fail_over(topic, reason)
    return changes.fail_over(topic, reason, partitions=partitions, to=to)


def _migrate(changes: LoggedChanges, reason: str, asked: Asked) -> Logged[Any]:
    topic, to, reset = _named(asked, "topic"), _text(asked, "to"), asked.body.get("reset") is True
    return changes.migrate(topic, reason, to=to, reset=reset, stop=asked.backend.stopping)


def _reshard(changes: LoggedChanges, reason: str, asked: Asked) -> Logged[Any]:
    restored = asked.body.get("restored") is True
    return changes.reshard(reason, shards=_whole(asked, "shards", 1, MOST_SHARDS), restored=restored)


def _replay(asked: Asked) -> Fields:
    """As `inorder outbox replay`: all rows only where `all` says so."""
    wanted = filter_of(asked.body, ("topic", "key"))
    if since := _text(asked, "since"):
        wanted["since"] = _moment(since)
    if not wanted and asked.body.get("all") is not True:
        raise ConfigurationError("Nothing says which rows to replay.", hint="Give topic, key or since, or all.")
    if asked.body.get("dry_run") is True:
        return {"count": asked.backend.count_replay(**wanted), "dry_run": True}
    return _change(lambda changes, reason, _asked: changes.replay_outbox(reason, **wanted))(asked)


def _apply_columns(changes: LoggedChanges, reason: str, asked: Asked) -> Logged[Any]:
    chosen = asked.body.get("fields")
    if not isinstance(chosen, dict) or not chosen or not all(isinstance(each, str) for each in chosen.values()):
        raise ConfigurationError("fields is not an object of names and types.", hint='Such as {"colour": "text"}.')
    return changes.apply_columns(chosen, _text(asked, "table"), reason)


def _text(asked: Asked, name: str) -> str | None:
    """A text of the body; None where it is not given."""
    value = asked.body.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name} = {value!r} is not text.")
    return value or None


def _named(asked: Asked, name: str) -> str:
    if (found := _text(asked, name)) is None:
        raise ConfigurationError(f"`{name}` is missing.")
    return found


def _whole(asked: Asked, name: str, least: int, most: int | None = None) -> int | None:
    """A whole number of the body within its bounds; None where it is not given."""
    if asked.body.get(name) is None:
        return None
    found = number_of(asked.body, name, 0)
    if found < least or (most is not None and found > most):
        raise ConfigurationError(f"{name} = {found} is out of range.", hint=f"From {least} to {most or 'any number'}.")
    return found


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"since = {text!r} is not a time.", hint="Write 2026-01-31T12:00:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _result(backend: WebBackend, id: str) -> Fields:
    entry = backend.action(id)
    return _found(None if entry is None else whole_action(*entry), "action")


def _ids(body: Mapping[str, Any]) -> list[str]:
    ids = body.get("ids", [])
    if not isinstance(ids, list):
        raise ConfigurationError("ids is not a list.")
    return [str(each) for each in ids]


def _part(name: str) -> Callable[[Asked], Fields]:
    return lambda asked: dict(asked.backend.status()[name])


_PAGE = ("limit", "after")
_JOURNAL = ("topic", "id", "reason")
_PAUSE = ("kind", "name", "reason")
_SETTLE = ("ids", "all", "reason", "dry_run")
MOST_SHARDS: Final = 1000

ROUTES: Final = (
    ApiRoute("GET", "/status", "Every part as it was last read, with its age.", lambda asked: asked.backend.status()),
    ApiRoute("GET", "/flow", "Each hop with its health, and what needs attention.", lambda a: asdict(a.backend.flow())),
    ApiRoute("GET", "/key", "One key at every hop.", _key, ("key", "topic", "all_partitions", "before")),
    ApiRoute("GET", "/relay", "The outbox and its relay.", _part("relay")),
    ApiRoute("GET", "/topics", "Topics that something uses, and their generations.", _part("topics")),
    ApiRoute("GET", "/topics/{name}", "One topic and its generations.", _topic),
    ApiRoute("GET", "/topics-plan", "What `topics apply` would do.", lambda asked: asked.backend.topics_plan()),
    ApiRoute("GET", "/pipeline", "The tables of the job upsert.", _part("pipeline")),
    ApiRoute(
        "GET",
        "/pipeline-plan",
        "Columns for fields that no mapping names.",
        lambda asked: asked.backend.pipeline_plan(asked.query.get("table") or None),
        ("table",),
    ),
    ApiRoute("GET", "/journals", "Journals and their store.", _part("journal")),
    ApiRoute(
        "GET",
        "/journal-list",
        "Replicated journals of a topic, in any order.",
        _journal_list,
        ("topic", "origin", "created", "expires", "limit"),
    ),
    ApiRoute("GET", "/journal", "One journal and its events.", _journal, ("topic", "id", "from", "limit")),
    ApiRoute("GET", "/exceeded", "Refused records.", _exceeded, (*_PAGE, *_EXCEEDED)),
    ApiRoute(
        "GET",
        "/exceeded-groups",
        "Refused records, counted by code and topic.",
        lambda asked: asked.backend.exceeded_groups(**filter_of(asked.query, _EXCEEDED)),
        _EXCEEDED,
    ),
    ApiRoute("GET", "/exceeded/{id}", "One refused record.", _exceeded_one),
    ApiRoute(
        "POST", "/exceeded/retry", "Put refused records back.", _settle("exceeded", "retry"), (), (*_SETTLE, *_EXCEEDED)
    ),
    ApiRoute(
        "POST",
        "/exceeded/discard",
        "Discard refused records.",
        _settle("exceeded", "discard"),
        (),
        (*_SETTLE, *_EXCEEDED),
    ),
    ApiRoute("GET", "/missing", "Ids that are looked for; strategy polling.", _missing, _PAGE),
    ApiRoute("GET", "/dead-letters", "Rejected records.", _letters, (*_PAGE, "after_pipeline", *_LETTERS)),
    ApiRoute(
        "GET",
        "/dead-letter-groups",
        "Rejected records, counted by pipeline, topic and code.",
        lambda asked: asked.backend.letter_groups(**filter_of(asked.query, _LETTERS)),
        _LETTERS,
    ),
    ApiRoute("GET", "/dead-letters/{id}", "One rejected record.", _letter, ("pipeline",)),
    ApiRoute(
        "POST",
        "/dead-letters/retry",
        "Apply records late.",
        _settle("dead-letters", "retry"),
        (),
        (*_SETTLE, *_LETTERS, "through", "settle_stale"),
    ),
    ApiRoute(
        "POST",
        "/dead-letters/discard",
        "Discard rejected records.",
        _settle("dead-letters", "discard"),
        (),
        (*_SETTLE, *_LETTERS),
    ),
    ApiRoute("GET", "/quarantine", "Records of journals in quarantine.", lambda asked: asked.backend.quarantined()),
    ApiRoute(
        "POST",
        "/quarantine/release",
        "Apply a journal's records.",
        _settle_journal("release"),
        (),
        _JOURNAL,
    ),
    ApiRoute(
        "POST",
        "/quarantine/discard",
        "Discard a journal's records.",
        _settle_journal("discard"),
        (),
        (*_JOURNAL, "offset"),
    ),
    ApiRoute(
        "POST", "/pause", "Let a topic, a key (TOPIC/KEY), a shard, a table or a job wait.", _pause("pause"), (), _PAUSE
    ),
    ApiRoute("POST", "/resume", "End a pause.", _pause("resume"), (), _PAUSE),
    ApiRoute(
        "POST",
        "/topics/apply",
        "Create missing topics of the settings, and set what differs.",
        _change(lambda changes, reason, _asked: changes.apply_topics(reason)),
        (),
        ("reason",),
    ),
    ApiRoute(
        "POST",
        "/topics/failover",
        "Switch a topic to a new Kafka topic, in order; or cancel that.",
        _change(_fail_over),
        (),
        ("topic", "partitions", "to", "cancel", "reason"),
        ("topic", "reason"),
    ),
    ApiRoute(
        "POST",
        "/topics/migrate",
        "Copy later generations of a topic into one Kafka topic.",
        _change(_migrate),
        (),
        ("topic", "to", "reset", "reason"),
        ("topic", "reason"),
    ),
    ApiRoute(
        "POST",
        "/relay/reshard",
        "Change shards, group or strategy; running instances stop.",
        _change(_reshard),
        (),
        ("shards", "restored", "reason"),
    ),
    ApiRoute(
        "POST",
        "/outbox/replay",
        "Publish kept rows again.",
        _replay,
        (),
        ("topic", "key", "since", "all", "dry_run", "reason"),
    ),
    ApiRoute(
        "POST",
        "/pipeline/apply",
        "Add nullable columns to a table.",
        _change(_apply_columns),
        (),
        ("table", "fields", "reason"),
        ("fields", "reason"),
    ),
    ApiRoute("GET", "/doctor", "Check machine, database and Kafka.", lambda asked: asked.backend.doctor()),
    ApiRoute("GET", "/settings", "Every setting, secrets masked.", lambda asked: asked.backend.settings_rows()),
    ApiRoute("GET", "/actions", "The log of actions.", _actions, ("limit", "before")),
    ApiRoute("GET", "/actions/{id}", "One action with its result.", _action),
    ApiRoute("GET", "/openapi.json", "This document.", lambda _asked: openapi()),
)


def openapi() -> Fields:
    """The OpenAPI document of all routes."""
    paths: dict[str, Fields] = {}
    about = (__doc__ or "").partition("\n\n")[2].strip()
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "inorder", "version": _version(), "description": about},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _operation(route: ApiRoute) -> Fields:
    in_path = [part.strip("{}") for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
    parameters += [{"name": name, "in": "query", "schema": _schema(name)} for name in route.parameters]
    operation: Fields = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').translate({123: None, 125: None})}",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": answer_schema(route.method, route.path)}},
            },
            "4XX": {"description": "Refused, with the reason."},
            "503": {"description": "A server is away."},
        },
    }
    if route.body:
        schema = {
            "type": "object",
            "properties": {name: _schema(name) for name in route.body},
            "required": [*route.required],
        }
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _schema(name: str) -> Fields:
    if name in ("all", "dry_run", "all_partitions", "settle_stale", "cancel", "reset", "restored"):
        return {"type": "boolean"}
    if name == "through":
        return {"type": "string", "enum": list(_THROUGH)}
    if name in ("created", "expires"):
        return {"type": "string", "format": "date"}
    if name in ("limit", "from", "partitions", "shards", *_NUMBERS):
        return {"type": "integer"}
    if name == "since":
        return {"type": "string", "format": "date-time"}
    if name == "fields":
        return {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "array", "items": {"type": ["string", "integer"]}} if name == "ids" else {"type": "string"}


def _version() -> str:
    try:
        return importlib.metadata.version("inorder")
    except importlib.metadata.PackageNotFoundError:
        return "0"
