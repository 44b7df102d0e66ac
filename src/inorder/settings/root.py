"""`Settings`: all sections together, how they are loaded, shown and compared.

A running relay reloads its settings when the file changes (`relay.reload_on_change`). `compare` finds the keys that
changed, and `keep_fixed` keeps the old values of those that need a restart:

| keys                                                                 | effect on a running relay                   |
|---|---|
| [kafka], [topics], [relay] and [relay.polling] except those below    | used after the current batch                |
| [log]                                                                | used at once                                |
| those that name or share the work: group, strategy, layout, tables,  | the old ones stay until the next start      |
| delivery, leadership, shards, lease, database, redis, health         |                                             |
| all others                                                           | none                                        |
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Self, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, SecretStr, model_validator
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticCustomError

from inorder.model.partitioning import Partitioner
from inorder.model.secrets import MASK, mask_value
from inorder.settings.contradictions import find_contradictions
from inorder.settings.journal import JournalSettings
from inorder.settings.outbox import OutboxSettings, PublisherSettings, TopicSettings
from inorder.settings.pipeline import PipelineSettings
from inorder.settings.relay import RelaySettings
from inorder.settings.section import SecretUrl, Section, TopicName
from inorder.settings.servers import (
    DatabaseSettings,
    HealthSettings,
    KafkaSettings,
    LogSettings,
    ObserveSettings,
    Property,
    RedisSettings,
)
from inorder.settings.sources import (
    KeyPath,
    SettingOrigin,
    Source,
    SourcedValue,
    key_text,
    read_entries,
    read_environment,
    read_file,
    refusal,
)
from inorder.settings.web import WebSettings

_DEFAULT = SettingOrigin("default", "")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as `inorder config show` prints it, with secrets masked."""

    key: str
    value: object
    source: Source
    place: str


class Settings(Section):
    """All settings; `Settings.load("inorder.toml", relay={"group": "shop"})` reads them."""

    kafka: KafkaSettings = Field(default_factory=lambda: KafkaSettings({}))
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    redis: RedisSettings = Field(default_factory=RedisSettings)
    publisher: PublisherSettings = Field(default_factory=PublisherSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)
    topics: dict[TopicName, TopicSettings] = Field(default_factory=dict)
    outbox: OutboxSettings = Field(default_factory=OutboxSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    observe: ObserveSettings = Field(default_factory=ObserveSettings)
    web: WebSettings = Field(default_factory=WebSettings)

    _origins: dict[KeyPath, SettingOrigin] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, path: str | File | None = None, **overrides: Mapping[str, Any]) -> Self:
        """Reads the file, INORDER_* variables and the overrides; raises `ConfigurationError` for what is wrong.

        Without `path`, `./inorder.toml` is read if it exists.
        """
        found = [*read_file(cls, path), *read_environment(cls, os.environ)]
        found += read_entries(cls, overrides, SettingOrigin("override", "the overrides"))
        return cls._from_entries({entry.path: entry for entry in found})

    @classmethod
    def _from_entries(cls, found: Mapping[KeyPath, SourcedValue]) -> Self:
        try:
            settings = cls.model_validate(_tree_of(found.values()))
        except PydanticError as error:
            # Pydantic's own text may quote a secret value, so it is not kept as the cause.
            raise refusal(cls, error, found) from None
        settings._origins.update({path: entry.origin for path, entry in found.items()})
        return settings

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if found := list(find_contradictions(self)):
            raise PydanticCustomError("contradiction", "{text}", {"text": "\n".join(found)})
        return self

    def topic(self, name: str) -> TopicSettings:
        """The settings of a topic; the defaults where it has no section."""
        return self.topics.get(name, TopicSettings())

    def producer_properties(self, topic: str) -> dict[str, Property]:
        """The client properties for a producer of this topic, with secrets in plain text: never print them."""
        return {**self.kafka.properties, **self.topic(topic).kafka.properties}

    def partitioners(self) -> dict[str, Partitioner]:
        """Topics whose partitions we choose ourselves; the client chooses those of all others."""
        chosen = {name: Partitioner(topic.partitioner) for name, topic in self.topics.items()}
        return {name: each for name, each in chosen.items() if each is not Partitioner.MURMUR2}

    def named_topics(self) -> frozenset[str]:
        """The topics that the settings name, by more than a default; a message to another one may be mistyped."""
        targets = self.pipeline.targets if self.pipeline.model_fields_set & {"tables", "upsert"} else ()
        return frozenset({*self.topics, *(target.topic for target in targets)})

    def schema_file(self, topic: str) -> File | None:
        """The JSON Schema file of a topic, relative to the settings file that names it, or to the current folder."""
        named = self.topic(topic).json_schema
        if named is None:
            return None
        origin = self._origins.get(("topics", topic, "json_schema"), _DEFAULT)
        return File(origin.place).parent / named if origin.source == "file" else File(named)

    def describe(self) -> list[Row]:
        """Every setting with its value, secrets masked, and its source."""
        return [self._row(path, value) for path, value in leaves(self)]

    def _row(self, path: KeyPath, value: object) -> Row:
        # The parts of a list of tables have the origin of the list.
        origins = (self._origins.get(path[:length]) for length in range(len(path), 0, -1))
        origin = next((found for found in origins if found is not None), _DEFAULT)
        return Row(key_text(path), _shown(value), origin.source, origin.place)


def _tree_of(found: Iterable[SourcedValue]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for entry in found:
        table = tree
        for part in entry.path[:-1]:
            table = table.setdefault(part, {})
        table[entry.path[-1]] = entry.value
    return tree


def leaves(settings: Settings) -> Iterator[tuple[KeyPath, object]]:
    """Every setting with its key; secrets are not masked, so never print them."""
    return _leaves(settings, ())


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, KafkaSettings):
        yield from (((*path, name), item) for name, item in value.root.items())
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*path, name))
    elif isinstance(value, dict) and any(isinstance(item, BaseModel) for item in value.values()):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list) and any(isinstance(item, BaseModel) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    elif path != ("topics",):
        yield path, value


def _shown(value: object) -> object:
    if isinstance(value, SecretUrl):
        return str(value)
    return MASK if isinstance(value, SecretStr) else mask_value(value)


M = TypeVar("M", bound=BaseModel)

_FIXED_SECTIONS = ("database", "redis", "health", "observe")
_FIXED_OF_RELAY = (
    "group",
    "strategy",
    "layout",
    "table",
    "delivery",
    "leadership",
    "shards",
    "lease",
    "retention_days",
    "stop_seconds",
)
_FIXED_OF_POLLING = ("missing_table", "exceeded_table", "offset_table")
_FIXED = (
    *((section,) for section in _FIXED_SECTIONS),
    *(("relay", name) for name in _FIXED_OF_RELAY),
    *(("relay", "polling", name) for name in _FIXED_OF_POLLING),
)
_RELOADED = (("kafka",), ("topics",), ("relay",))


@dataclass(frozen=True, slots=True)
class Changes:
    """The keys that changed, as written in TOML."""

    for_the_relay: tuple[str, ...]
    """A running relay uses these after its current batch."""
    for_a_restart: tuple[str, ...]
    """These take effect at the next start."""

    @property
    def of_kafka(self) -> bool:
        """Whether properties of the Kafka client changed."""
        return any(key.startswith("kafka.") for key in self.for_the_relay)


def compare(old: Settings, new: Settings) -> Changes:
    """The keys whose values differ."""
    keys = sorted(_changed(old, new))
    fixed = [key for key in keys if _starts_with(key, _FIXED)]
    taken = [key for key in keys if key not in fixed and _starts_with(key, _RELOADED)]
    return Changes(tuple(key_text(key) for key in taken), tuple(key_text(key) for key in fixed))


def keep_fixed(old: Settings, new: Settings) -> Settings:
    """The new settings, with the old values of all keys that need a restart."""
    polling = _with(new.relay.polling, old.relay.polling, _FIXED_OF_POLLING)
    relay = _with(new.relay, old.relay, _FIXED_OF_RELAY).model_copy(update={"polling": polling})
    return _with(new, old, _FIXED_SECTIONS).model_copy(update={"relay": relay})


def find_conflicts(settings: Settings) -> list[str]:
    """The contradictions of settings that `keep_fixed` combined from two files."""
    return list(find_contradictions(settings))


def _with(new: M, old: M, names: tuple[str, ...]) -> M:
    return new.model_copy(update={name: getattr(old, name) for name in names})


def _changed(old: Settings, new: Settings) -> Iterator[KeyPath]:
    before, after = dict(leaves(old)), dict(leaves(new))
    for key in before.keys() | after.keys():
        if key not in before or key not in after or before[key] != after[key]:
            yield key


def _starts_with(key: KeyPath, prefixes: tuple[KeyPath, ...]) -> bool:
    return any(key[: len(prefix)] == prefix for prefix in prefixes)
