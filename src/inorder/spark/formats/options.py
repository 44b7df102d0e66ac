"""What `.option(…)` may say to a format: names of its own, and the settings that one is likely to give alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from inorder.model.errors import ConfigurationError

CONFIG: Final = "config"
KAFKA_PREFIX: Final = "kafka."
_OF_SPARK: Final = frozenset({"checkpointlocation"})
"""What Spark hands on although it is not for us; it spells all names in lower case."""

Overrides = Mapping[str, Mapping[str, str]]
"""Sections of the settings with some of their keys."""


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """The options of one format."""

    format: str
    own: frozenset[str] = frozenset()
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Options that are another name for a setting: its section and its key."""
    takes_kafka: bool = False
    """Whether `kafka.NAME` is the property NAME of the Kafka client."""

    def read(self, given: Mapping[str, str]) -> Options:
        """The options that were given; one that is not known is refused, with the one that was probably meant."""
        own: dict[str, str] = {}
        overrides: dict[str, dict[str, str]] = {}
        for name, value in given.items():
            if name == CONFIG or name in self.own:
                own[name] = value
            elif name not in _OF_SPARK:
                section, key = self._setting(name)
                overrides.setdefault(section, {})[key] = value
        return Options(self.format, own, overrides)

    def _setting(self, name: str) -> tuple[str, str]:
        if name in self.settings:
            return self.settings[name]
        if self.takes_kafka and name.startswith(KAFKA_PREFIX):
            return "kafka", name.removeprefix(KAFKA_PREFIX)
        known = sorted({CONFIG, *self.own, *self.settings})
        raise ConfigurationError(
            f"The format {self.format!r} has no option {name!r}{nearest(name, known)}",
            hint=f"It has {', '.join(known)}{f' and {KAFKA_PREFIX}PROPERTY' if self.takes_kafka else ''}.",
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What was given to a format."""

    format: str
    own: Mapping[str, str]
    overrides: Overrides

    @property
    def config(self) -> str | None:
        """The settings file, on the driver's machine; without it, the file and variables that commands read."""
        return self.own.get(CONFIG)

    def get(self, name: str) -> str | None:
        """The value of an option of the format's own."""
        return self.own.get(name)

    def require(self, name: str, why: str) -> str:
        """The same for one that must be there."""
        if value := self.own.get(name):
            return value
        raise ConfigurationError(f"The format {self.format!r} needs the option {name!r}: {why}.")

    def says(self, name: str) -> bool:
        """Whether an option is true."""
        value = self.own.get(name, "false").lower()
        if value not in ("true", "false"):
            raise ConfigurationError(
                f"The option {name!r} of the format {self.format!r} is {value!r}.", hint="Say true or false."
            )
        return value == "true"


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about a name that is not known.

    >>> nearest("tabel", ["table", "config"]), nearest("x", ["table"])
    ("; did you mean 'table'?", '.')
    """
    found = get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else "."
