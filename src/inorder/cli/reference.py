"""Writes the generated pages of docs/ and the files of deploy/ beside it: `python -m inorder.cli.reference docs`.

Commands come from the Typer application, errors from `inorder.model.errors`, settings from the pydantic models, and log
events from the logging calls in the source. So no page can be out of date: a test compares each with the code.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

import inorder
from inorder.cli.main import app
from inorder.kafka.fenced_producer import SHORTEST_BACKOFF_MS
from inorder.model import errors
from inorder.model.errors import InorderError
from inorder.observe import views
from inorder.settings.root import Settings
from inorder.settings.servers import BOOTSTRAP_DEFAULT, RESERVED
from inorder.settings.sources import OTHER_VARIABLES, PREFIX, KeyPath, Model, is_free, named_section_of, section_of


def pages() -> dict[str, str]:
    """Every generated page, by file name."""
    return {"cli.md": cli_page(), "errors.md": errors_page(), "logs.md": logs_page(), "settings.md": settings_page()}


def write(folder: Path) -> None:
    """Writes every page into a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


# docs/cli.md

_CLI_HEAD = """\
# Commands

This page is generated from the code by `make docs`.

Data goes to stdout, messages go to stderr. Every command takes `--config FILE`, and every command that prints
data takes `--json`, except `inorder observe`, whose output is a file for another program.
SIGTERM and Ctrl-C stop a service gracefully: a relay or a job within 10 s, embedded
servers within 30 s; one that takes longer reports it and exits with 1. Ctrl-C ends other commands with 130.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage |
| 3 | wrong configuration |
| 4 | a dependency is unreachable: a server, a download, Java, disk |
| 5 | a guarantee was violated: loss, disorder or duplicates |

`make` itself exits with 2 whenever a target fails; its last line shows the command's own exit code, as in
`make: *** [Makefile:30: demo] Error 4`.
`INORDER_TRACEBACK=1` shows the traceback of an error.
"""

_WIDTH = 100


def cli_page() -> str:
    """Every command with its options."""
    return "\n".join([_CLI_HEAD, *_commands(typer.main.get_command(app), "inorder")])


def _commands(command: Any, name: str) -> Iterator[str]:
    # Typer keeps its copy of Click private, so these objects have no public type.
    children = getattr(command, "commands", None)
    if children is None:
        # A fixed width, so that the page does not depend on the terminal it is written in.
        context = command.context_class(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH)
        yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"
        return
    for child, inner in children.items():
        yield from _commands(inner, f"{name} {child}")


# docs/errors.md

_ERRORS_HEAD = """\
# Errors

This page is generated from the code by `make docs`.

Every error that inorder raises on purpose is an `InorderError` with a stable `code`, a `message` that says
what happened, and a `hint` that says what to do next. Programs match the class or the code; texts may change.

| code | class | kind of | exit code | meaning |
|---|---|---|---|---|
"""


def errors_page() -> str:
    """The tree of errors, a row each; one that belongs to two families has one row."""
    return _ERRORS_HEAD + "\n".join(_error_row(kind) for kind in dict.fromkeys(_tree(InorderError))) + "\n"


def _tree(kind: type[InorderError]) -> Iterator[type[InorderError]]:
    # Only public errors: a private subclass elsewhere never leaves its module.
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


def _error_row(kind: type[InorderError]) -> str:
    parents = ", ".join(f"`{parent.__name__}`" for parent in kind.__bases__)
    return f"| `{kind.code}` | `{kind.__name__}` | {parents} | {kind.exit_code} | {_cell(kind.__doc__ or '')} |"


def _cell(text: str) -> str:
    """A text as one cell of a table: one line, without a column separator."""
    return " ".join(text.split()).replace("|", "\\|")


# docs/logs.md

_LOGS_HEAD = """\
# Log events

This page is generated from the code by `make docs`.

Every log record of inorder has a fixed event name and fields. With `log.format = "json"` a record is one JSON object:
`event` is the name, `level`, `logger` and `timestamp` describe the record, and the fields below are keys beside
them. On a terminal the same record is one line of `name=value` pairs. A program that uses the library gets the
event name as the message of the `logging` record and the fields as its attributes. No field holds a payload.
[Operations](operations.md) says what to do about the events that need attention.

| event | level | logger | fields |
|---|---|---|---|
"""

_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")


class LogCall(NamedTuple):
    """One logging call in the source."""

    event: str | None
    """None where the name is not a string constant."""
    level: str
    logger: str
    fields: tuple[str, ...]
    place: str
    """File and line."""


def logs_page() -> str:
    """Every event with its levels, loggers and fields, in alphabetical order."""
    by_event: dict[str, list[LogCall]] = defaultdict(list)
    for call in log_calls():
        if call.event is not None:
            by_event[call.event].append(call)
    return _LOGS_HEAD + "".join(_event_row(event, by_event[event]) for event in sorted(by_event))


def _event_row(event: str, calls: list[LogCall]) -> str:
    levels = ", ".join(sorted({call.level for call in calls}, key=_LEVELS.index))
    loggers = ", ".join(f"`{logger}`" for logger in sorted({call.logger for call in calls}))
    fields = ", ".join(f"`{field}`" for field in dict.fromkeys(field for call in calls for field in call.fields))
    return f"| `{_cell(event)}` | {levels} | {loggers} | {fields} |\n"


def log_calls() -> Iterator[LogCall]:
    """Every call of a level method on a module's logger, in the order of the files."""
    root = Path(inorder.__file__).parent
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        loggers = dict(_loggers(tree))
        constants = dict(_constants(tree))
        for scope in _scopes(tree):
            for node in _own_nodes(scope):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner, level = node.func.value, node.func.attr
                    if isinstance(owner, ast.Name) and owner.id in loggers and level in _LEVELS and node.args:
                        place = f"{file.relative_to(root)}:{node.lineno}"
                        level = "error" if level == "exception" else level
                        event = _event(node.args, constants)
                        yield LogCall(event, level, loggers[owner.id], tuple(_fields(node, scope)), place)


def _loggers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names of a module that are loggers: `log = logging.getLogger("inorder.…")`, or structlog's `get_logger`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in ("getLogger", "get_logger") and node.value.args:
                first = node.value.args[0]
                logger = str(first.value) if isinstance(first, ast.Constant) else ast.unparse(first)
                yield from ((target.id, logger) for target in node.targets if isinstance(target, ast.Name))


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield target.id, value.value


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own_nodes(child)


def _event(arguments: list[ast.expr], constants: dict[str, str]) -> str | None:
    """The name of the event; None where it is computed, or has arguments of its own."""
    match arguments:
        case [ast.Constant(value=str(event))]:
            return event
        case [ast.Name(id=name)] if name in constants:
            return constants[name]
    return None


def _fields(call: ast.Call, scope: ast.AST) -> Iterator[str]:
    """The keys of `extra=`, written in the call or assigned in the same function, or structlog's keyword arguments."""
    for keyword in call.keywords:
        if keyword.arg == "extra":
            yield from _keys(keyword.value, scope)
        elif keyword.arg not in (None, "exc_info", "stack_info", "stacklevel"):
            yield keyword.arg


def _keys(value: ast.expr, scope: ast.AST) -> Iterator[str]:
    match value:
        case ast.Dict(keys=keys, values=values):
            for key, inner in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value)
                elif key is None:  # {**others}
                    yield from _keys(inner, scope)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _keys(left, scope)
            yield from _keys(right, scope)
        case ast.Name(id=name):
            for node in _own_nodes(scope):
                if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                    yield from _keys(node.value, scope)


# docs/settings.md

_SETTINGS_HEAD = """\
# Settings

This page is generated from the code by `make docs`; change the descriptions there.

inorder reads `inorder.toml` in the current folder, or the file after `--config`. Variables named
`INORDER_SECTION__FIELD` override the file; keyword overrides of `Settings.load` and command options override
both. An unknown key is an error that names the nearest known one. `inorder config show` prints the settings
in effect and where each came from; secrets are masked everywhere.

In a variable two underscores separate section and field: `INORDER_PIPELINE__UPSERT__TOPIC`. A table is JSON:
`INORDER_TOPICS={"orders": {"partitioner": "id-modulo"}}`.
"""

_KAFKA = f"""\
Any property of librdkafka is passed to the client, quoted, because its name has dots:

```toml
[kafka]
"bootstrap.servers" = "{BOOTSTRAP_DEFAULT}"
"security.protocol" = "sasl_ssl"
```

In a variable each dot is one underscore: `INORDER_KAFKA__BOOTSTRAP_SERVERS` sets `"bootstrap.servers"`, whose
default is `{BOOTSTRAP_DEFAULT}`. Values of properties whose names contain a word such as
`password`, `secret`, `token`, `private.key` or `jaas`, and passwords in URLs, are masked.

The engine `micro-batch` reads with Spark's Java client, for which addresses, TLS and login are translated; see
`pipeline.kafka_java`.

Transactional producers wait {SHORTEST_BACKOFF_MS} ms at least before they repeat a request (`retry.backoff.ms`),
because a commit that is answered sooner was certainly sent once. A larger value is used as it is.

These are refused, because inorder sets them itself:
"""


def settings_page() -> str:
    """Every section and key, with default, values and variable."""
    lines = [_SETTINGS_HEAD, *_sections(Settings, ()), "## Other variables\n"]
    lines += [f"- `{name}`: {purpose}." for name, purpose in OTHER_VARIABLES.items()]
    return "\n".join(lines) + "\n"


def _sections(model: Model, prefix: KeyPath) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        if is_free(field.annotation):
            yield f"## [{name}]\n\n{_KAFKA}"
            yield "\n".join(f"- `{key}`: {reason}" for key, reason in RESERVED.items()) + "\n"
        elif inner := section_of(field.annotation):
            yield from _section(inner, path)
        elif inner := named_section_of(field.annotation):
            yield from _section(inner, (*path, "NAME"))


def _section(model: Model, path: KeyPath) -> Iterator[str]:
    yield f"## [{'.'.join(path)}]\n\n{inspect.cleandoc(model.__doc__ or '')}\n"
    for name, field in model.model_fields.items():
        if not section_of(field.annotation):
            yield from _field((*path, name), field)
    for name, field in model.model_fields.items():
        if inner := section_of(field.annotation):
            yield from _section(inner, (*path, name))


def _field(path: KeyPath, field: FieldInfo) -> Iterator[str]:
    yield f"### {'.'.join(path)}\n"
    yield f"{field.description}\n"
    yield f"- Default: {_default(field)}"
    if get_origin(field.annotation) is Literal:
        yield f"- Values: {', '.join(f'`{value}`' for value in get_args(field.annotation))}"
    yield f"- Variable: `{PREFIX}{'__'.join(path).upper()}`\n"


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None or is_free(field.annotation):
        return "none"
    return f"`{json.dumps(value)}`"


def write_views(folder: Path) -> None:
    """Writes the alert rules and the dashboard into a folder."""
    for name, text in views.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    write_views(Path(sys.argv[1]).parent / "deploy")
