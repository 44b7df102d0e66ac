"""URLs of servers: checked by their scheme, and never printed with their password."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

from inorder.model.errors import ConfigurationError

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
