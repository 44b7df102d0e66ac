"""What all sections share: frozen, nothing unknown, and a plain refusal of what is not built yet.

A field whose contract is wider than this version says both in its own line:

    strategy: Annotated[Literal["drain"], Planned("mark-purge", "topic-lock", "polling")]

The `Literal` is what is built; `Planned` is what the contract knows beside it. A later version moves a word
from the one to the other and nothing else here changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr
from pydantic_core import PydanticCustomError

from inorder.model.errors import ConfigurationError


class Section(BaseModel):
    """A table of inorder.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True, init=False)
class Planned:
    """Values that the contract knows and this version has not built."""

    values: tuple[object, ...]

    def __init__(self, *values: object) -> None:
        object.__setattr__(self, "values", values)


def _whole(value: Any) -> Any:
    # Pydantic would take `true` for 1 and 3.0 for 3; in a configuration file both are mistakes.
    if isinstance(value, bool | float):
        raise PydanticCustomError("whole_number", "a whole number")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]


def _spelt(pattern: str, expected: str) -> AfterValidator:
    shape = re.compile(pattern)

    def check(value: str) -> str:
        if not shape.fullmatch(value):
            raise PydanticCustomError("spelling", "{expected}", {"expected": expected})
        return value

    return AfterValidator(check)


_WORD = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_WORDS = "letters, digits and _, at most 63, not beginning with a digit"

# Quoting in statements relies on these shapes (inorder.database.sql).
TableName = Annotated[str, _spelt(rf"{_WORD}(\.{_WORD})?", f"{_WORDS}; one schema may stand before a dot")]
ColumnName = Annotated[str, _spelt(r"[A-Za-z_][A-Za-z0-9_]{0,62}", _WORDS)]
_TOPIC = r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"
_TOPICS = "1 to 249 letters, digits, '.', '_' and '-'"
TopicName = Annotated[str, _spelt(_TOPIC, _TOPICS)]
TopicNameOrNone = Annotated[str, _spelt(f"|{_TOPIC}", f"{_TOPICS}, or nothing")]
GroupName = Annotated[str, _spelt(r"[A-Za-z0-9._-]{1,200}", "1 to 200 letters, digits, '.', '_' and '-'")]

OnExceeded = Literal["park", "skip", "block"]
"""What happens to a record that used up its attempts, for all topics or for one."""


# URLs of servers: checked by their scheme, and never printed with their password.

# Up to the last @, because an unescaped @ inside a password must not let its tail through.
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):(.*)@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"((?:password|passwd|sslpassword|passfile)=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL with every password in it replaced by three stars."""
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


class SecretUrl(SecretStr):
    """A URL that prints without its password; `get_secret_value()` has all of it."""

    def _display(self) -> str:
        return masked(self._secret_value)


def with_known_scheme(value: Any, kind: str, schemes: Sequence[str]) -> Any:
    """The value as it came, unless it is a URL of another scheme; `kind` says what is expected."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.partition("://")[0] not in schemes:
        known = ", ".join(f"{scheme}://" for scheme in schemes)
        raise PydanticCustomError("url", "{kind} that begins with {schemes}", {"kind": kind, "schemes": known})
    return value


def required(url: SecretUrl | None, section: str, example: str) -> str:
    """The URL in clear; raises `ConfigurationError` where none is set."""
    if url is None:
        raise ConfigurationError(
            f"{section}.url is not set.",
            hint=f'Set it in inorder.toml: [{section}] url = "{example}", or in INORDER_{section.upper()}__URL.',
        )
    return url.get_secret_value()
