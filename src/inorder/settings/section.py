"""What all sections share: the base model, types for names, and URLs that never print their password.

Sections are frozen and refuse unknown keys. Types for names refuse what a database or Kafka would refuse later, or what
could not be quoted in a statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr
from pydantic_core import PydanticCustomError

from inorder.model.errors import ConfigurationError
from inorder.model.secrets import is_ambiguous, mask_url


class Section(BaseModel):
    """A table of inorder.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


def _whole(value: Any) -> Any:
    # Pydantic would accept `true` as 1 and 3.0 as 3; in a configuration file both are mistakes.
    if isinstance(value, bool | float):
        raise PydanticCustomError("whole_number", "a whole number")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]


def matching(pattern: str, expected: str) -> AfterValidator:
    """Refuses text of another shape."""
    shape = re.compile(pattern)

    def check(value: str) -> str:
        if not shape.fullmatch(value):
            raise PydanticCustomError("spelling", "{expected}", {"expected": expected})
        return value

    return AfterValidator(check)


_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_IDENTIFIERS = "letters, digits and _, at most 63, not beginning with a digit"

# Quoting in statements relies on these shapes (inorder.database.sql).
TableName = Annotated[
    str, matching(rf"{_IDENTIFIER}(\.{_IDENTIFIER})?", f"{_IDENTIFIERS}; a schema and a dot may come first")
]
ColumnName = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,62}", _IDENTIFIERS)]
_TOPIC = r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"
_TOPICS = "1 to 249 letters, digits, '.', '_' and '-'"
TopicName = Annotated[str, matching(_TOPIC, _TOPICS)]
TopicNameOrNone = Annotated[str, matching(f"|{_TOPIC}", f"{_TOPICS}, or empty")]
GroupName = Annotated[str, matching(r"[A-Za-z0-9._-]{1,200}", "1 to 200 letters, digits, '.', '_' and '-'")]

OnExceeded = Literal["park", "skip", "block"]
"""What happens to a record that used up its attempts."""


class SecretUrl(SecretStr):
    """A URL that prints without its password; `get_secret_value()` returns all of it."""

    def _display(self) -> str:
        return mask_url(self._secret_value)


def check_scheme(value: Any, kind: str, schemes: Sequence[str]) -> Any:
    """Returns the value unless it is a URL of another scheme, or one whose password a driver would cut in two.

    `kind` names what is expected in the error.
    """
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str):
        return value
    scheme, mark, _ = text.partition("://")
    if scheme not in schemes or not mark:
        known = ", ".join(f"{scheme}://" for scheme in schemes)
        raise PydanticCustomError("url", "{kind} that begins with {schemes}", {"kind": kind, "schemes": known})
    if is_ambiguous(text):
        raise PydanticCustomError("url", "{kind} {escaped}", {"kind": kind, "escaped": _ESCAPED})
    return value


_ESCAPED = (
    "like scheme://user:password@host:port/name, with special characters of the password escaped: @ as %40, / as %2F, "
    "? as %3F, # as %23, : as %3A, % as %25"
)


def require_url(url: SecretUrl | None, section: str, example: str) -> str:
    """The URL with its password; raises `ConfigurationError` where none is set."""
    if url is None:
        raise ConfigurationError(
            f"{section}.url is not set.",
            hint=f'Set it in inorder.toml: [{section}] url = "{example}", or in INORDER_{section.upper()}__URL.',
        )
    return url.get_secret_value()
