"""Settings: all sections together, how they are loaded and how they are shown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Self

from pydantic import BaseModel, Field, PrivateAttr, SecretStr, model_validator
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticCustomError

from inorder.settings.contradictions import contradictions
from inorder.settings.journal import JournalSettings
from inorder.settings.outbox import OutboxSettings, PublisherSettings, TopicSettings
from inorder.settings.pipeline import PipelineSettings
from inorder.settings.relay import RelaySettings
from inorder.settings.section import SecretUrl, Section, TopicName
from inorder.settings.servers import DatabaseSettings, KafkaSettings, Property, RedisSettings
from inorder.settings.service import HealthSettings, LogSettings
from inorder.settings.sources import Entry, Origin, Path, Source, entries, from_environment, from_file, refusal, spelt

_DEFAULT = Origin("default", "")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as it is shown: never with a secret in it."""

    key: str
    value: object
    source: Source
    place: str


class Settings(Section):
    """Everything inorder can be told; `Settings.load("inorder.toml", relay={"group": "shop"})` makes it."""

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

    _origins: dict[Path, Origin] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(cls, path: str | File | None = None, **overrides: Mapping[str, Any]) -> Self:
        """Reads the file, INORDER_* variables and the overrides; what is wrong is a `ConfigurationError`.

        Without `path`, `./inorder.toml` is read where it exists.
        """
        found = [*from_file(cls, path), *from_environment(cls, os.environ)]
        found += entries(cls, overrides, Origin("override", "the overrides"))
        return cls._from_entries({entry.path: entry for entry in found})

    @classmethod
    def _from_entries(cls, found: Mapping[Path, Entry]) -> Self:
        try:
            settings = cls.model_validate(_tree_of(found.values()))
        except PydanticError as error:
            # Pydantic's own text may quote the value, a secret perhaps; ours is complete without it.
            raise refusal(cls, error, found) from None
        settings._origins.update({path: entry.origin for path, entry in found.items()})
        return settings

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if found := list(contradictions(self)):
            raise PydanticCustomError("contradiction", "{text}", {"text": "\n".join(found)})
        return self

    def topic(self, name: str) -> TopicSettings:
        """The settings of a topic, the default ones where it has no section."""
        return self.topics.get(name, TopicSettings())

    def producer_properties(self, topic: str) -> dict[str, Property]:
        """The client's properties for a producer of this topic, secrets in clear: never print them."""
        return {**self.kafka.properties, **self.topic(topic).kafka.properties}

    def schema_file(self, topic: str) -> File | None:
        """The file with the JSON Schema of a topic: beside the settings file that names it, else from where we are."""
        named = self.topic(topic).json_schema
        if named is None:
            return None
        origin = self._origins.get(("topics", topic, "json_schema"), _DEFAULT)
        return File(origin.place).parent / named if origin.source == "file" else File(named)

    def describe(self) -> list[Row]:
        """Every setting with its value, secrets masked, and the source it came from."""
        return [self._row(path, value) for path, value in leaves(self)]

    def _row(self, path: Path, value: object) -> Row:
        # A list of tables came as a whole, so its parts have no origins of their own.
        standing = (self._origins.get(path[:length]) for length in range(len(path), 0, -1))
        origin = next((found for found in standing if found is not None), _DEFAULT)
        return Row(spelt(path), _shown(value), origin.source, origin.place)


def _tree_of(found: Iterable[Entry]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for entry in found:
        table = tree
        for part in entry.path[:-1]:
            table = table.setdefault(part, {})
        table[entry.path[-1]] = entry.value
    return tree


def leaves(settings: Settings) -> Iterator[tuple[Path, object]]:
    """Every setting with its key; secrets as they are kept, so never print them."""
    return _leaves(settings, ())


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
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
    return "***" if isinstance(value, SecretStr) else value
