"""[redis]: where the lease lives, with leadership `redis`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from inorder.settings.section import Section
from inorder.settings.url import SecretUrl, required, with_known_scheme

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
        return with_known_scheme(value, "a URL", SCHEMES)

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        return required(self.url, "redis", "redis://host:6379/0")
