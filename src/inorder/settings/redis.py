"""[redis]: where the lease lives, with leadership `redis`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from inorder.model.errors import ConfigurationError
from inorder.settings.database import SecretUrl
from inorder.settings.section import Section

SCHEMES = ("redis", "rediss", "unix")


class RedisSettings(Section):
    """A Redis that keeps the lease, for `relay.leadership = "redis"` only; needs the extra `inorder[redis]`."""

    url: SecretUrl | None = Field(
        default=None,
        description=(
            "URL of the server, such as `redis://user@host:6379/0`, `rediss://…` with TLS or `unix://…` for a "
            "socket. The password is masked wherever inorder prints it; `INORDER_REDIS__URL` keeps it out of the "
            "file. There is no default, and leadership `redis` is refused without it."
        ),
    )

    @field_validator("url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(text, str) and text.partition("://")[0] not in SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise PydanticCustomError("url", "a URL that begins with {schemes}", {"schemes": schemes})
        return value

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        if self.url is None:
            raise ConfigurationError(
                "redis.url is not set.",
                hint='Set it in inorder.toml: [redis] url = "redis://host:6379/0", or in INORDER_REDIS__URL.',
            )
        return self.url.get_secret_value()
