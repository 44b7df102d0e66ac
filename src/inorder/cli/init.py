"""inorder init: a commented inorder.toml from the answers to five questions."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from inorder.cli.output import AsJson, load, say, show_json
from inorder.model.errors import ConfigurationError

_DATABASE = "postgresql+psycopg://localhost/shop"
_BROKERS = "127.0.0.1:9092"
_TOPIC = "orders"
_COLUMNS = "id bigint, data json"
_NEXT = """\
  inorder doctor                          says what is missing, and what to do about it
  inorder schema install                  the outbox table, in your database
  inorder topics apply                    the topic
  inorder relay run                       rows to Kafka"""
_NEXT_TABLE = """
  inorder schema install --layout table   the table that the topic feeds
  inorder pipeline run upsert             records to that table"""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the file is made from; without `columns` the topic feeds no table."""

    database: str = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    group: str
    topic: str
    partitions: int
    table: str
    columns: tuple[tuple[str, str], ...]


def init(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The file to write.")] = Path("inorder.toml"),
    database: Annotated[str | None, typer.Option(metavar="URL", help="Where your application commits.")] = None,
    brokers: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Kafka; several with commas.")] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The service that owns the outbox.")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="The topic of its messages.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help='The table that the topic feeds: "id bigint, data json", its key first; "" for none.'
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of that table; by default that of the topic.")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="How many partitions the topic gets.")] = 4,
    servers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take both addresses from what `inorder up --json` printed."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; use the options and the defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented inorder.toml for the answers to five questions.

    An option answers its question. A file that exists is never overwritten; one that would not pass `inorder config
    check` is not written.
    """
    if config.exists():
        raise _taken(config)
    found = _read_servers(servers) if servers else Servers()
    database = database or found.database

    def ask(question: str, given: str | None, default: str) -> str:
        if given is not None:
            return given
        return default if yes else str(typer.prompt(question, default=default, err=True))

    database = ask("URL of the database in which your application commits", database, _DATABASE)
    kafka = {"bootstrap.servers": brokers} if brokers else found.kafka
    kafka = kafka or {"bootstrap.servers": ask("Address of Kafka", None, _BROKERS)}
    group = ask("Name of the service", group, _name_of(Path.cwd().name))
    topic = ask("Topic of its messages", topic, _TOPIC)
    listed = ask("Columns of the table that the topic feeds, its key first (- for none)", columns, _COLUMNS)
    kept = table or _name_of(topic)
    answers = Answers(database, kafka, group, topic, partitions, kept, parse_columns(listed))
    _write(config, render(answers))
    if as_json:
        show_json({"file": str(config)})
    else:
        say(f"Wrote {config}. Next:\n{_NEXT}{_NEXT_TABLE if answers.columns else ''}")


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Names and types, the key first; nothing for an empty text or `-`."""
    if text.strip() in ("", "-"):
        return ()
    pairs = [tuple(part.split()) for part in text.split(",")]
    bad = next((pair for pair in pairs if len(pair) != 2), None)
    if bad is not None or len(pairs) < 2:
        wrong = "there is only a key" if bad is None else f"{' '.join(bad)!r} is not a name and a type"
        raise ConfigurationError(
            f"The columns {text!r} cannot be used: {wrong}.",
            hint=f'Write the key and at least one more column, each with its type: "{_COLUMNS}".',
        )
    return tuple((name, kind) for name, kind in pairs)


def render(answers: Answers) -> str:
    """The settings file, with a comment for each line that somebody may want to change."""
    text = f"""\
# Settings of inorder. `inorder config show` prints all of them, with their values and where these come from.
# A variable INORDER_SECTION__FIELD overrides a line; INORDER_DATABASE__URL keeps a password out of this file.

[database]
# Where your application commits. The outbox table is created here, beside your own tables.
url = {_quoted(answers.database)}

[kafka]
# Any property of librdkafka, also for TLS and login: "security.protocol", "sasl.mechanism", "ssl.ca.location", …
{_lines(answers.kafka)}

[relay]
# One name for each outbox. It is part of the names of the relay's own topics, so keep it: see `inorder relay reshard`.
group = {_quoted(answers.group)}
# table = "outbox"
# delivery = "exactly-once"      # readers use isolation.level=read_committed

[topics.{_quoted(answers.topic)}]
# `inorder topics apply` creates it. More partitions would move keys: see `inorder topics failover`.
partitions = {answers.partitions}
"""
    if not answers.columns:
        return text
    (key, key_type), *fields = answers.columns
    listed = ", ".join(f"{_quoted(name)} = {_quoted(kind)}" for name, kind in fields)
    return f"""{text}
[pipeline.upsert]
# `inorder pipeline run upsert` keeps the newest state of each key in this table.
topic = {_quoted(answers.topic)}
table = {_quoted(answers.table)}
key = {_quoted(key)}
key_type = {_quoted(key_type)}
fields = {{ {listed} }}
# deletes = "tombstone"          # a message without a value deletes its row
"""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lines(properties: Mapping[str, str]) -> str:
    return "\n".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in properties.items())


def _name_of(text: str) -> str:
    """A name that tables and groups may have."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_") or "shop"


@dataclass(frozen=True, slots=True)
class Servers:
    """Where `inorder up` runs a database and Kafka, with their logins."""

    database: str | None = field(default=None, repr=False)
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)


def _read_servers(file: Path) -> Servers:
    """What `inorder up --json` printed names its settings file, which has the passwords."""
    try:
        found = json.loads(file.read_text("utf-8"))
        if isinstance(found, dict) and isinstance(written := found.get("settings"), str):
            sections = tomllib.loads(Path(written).read_text("utf-8"))
            return Servers(sections.get("database", {}).get("url"), sections.get("kafka", {}))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} does not have the addresses of servers: {error}.",
            hint=f"Run `inorder up --json > {file}`, and wait until the servers are started.",
        ) from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file} has no JSON object of addresses.", hint="`inorder up --json` prints one.")
    brokers = found.get("kafka")
    return Servers(found.get("postgres") or found.get("mariadb"), {"bootstrap.servers": brokers} if brokers else {})


def _taken(file: Path) -> ConfigurationError:
    return ConfigurationError(f"{file} exists, and is not overwritten.", hint="Name another file with --config.")


def _write(file: Path, text: str) -> None:
    """Creates the file for its owner only, as a URL may have a password, and removes it if its settings are invalid."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _taken(file) from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}.", hint="Name another file.") from error
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(text)
    try:
        load(file)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
