"""[web]: the pages and the HTTP API of `inorder web`, and who may use them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from inorder.settings.section import Section, Whole, matching
from inorder.settings.servers import address_of, check_address

_SHORTEST_TOKEN = 16


class WebSettings(Section):
    """`inorder web`: pages and an HTTP API for operators. Needs the extra `inorder[web]`.

    On a loopback address everyone on the machine may read and act, unless a token or a trusted header is set. Any other
    address needs one of them.
    """

    listen: Annotated[str, AfterValidator(check_address)] = Field(
        default="127.0.0.1:8090",
        min_length=1,
        description="The address to listen on, such as `127.0.0.1:8090`, or a port alone, which means `127.0.0.1`.",
    )
    token: SecretStr | None = Field(
        default=None,
        description=(
            "Who presents this token may read and act: at the sign-in page, or as `Authorization: Bearer TOKEN`. At "
            "least 16 characters. `INORDER_WEB__TOKEN` keeps it out of the file."
        ),
    )
    read_token: SecretStr | None = Field(
        default=None, description="Who presents this token may read and not act. At least 16 characters."
    )
    trusted_header: Annotated[str, matching(r"[A-Za-z0-9-]*", "the name of an HTTP header")] = Field(
        default="",
        description=(
            "The header in which a proxy that authenticates users passes their name, such as `X-Forwarded-User`. It "
            "counts only in requests that come from `trusted_proxies`. The proxy must remove it from what users send, "
            "and pass `Host` as it is."
        ),
    )
    trusted_proxies: list[str] = Field(
        default=["127.0.0.1", "::1"],
        description="Addresses or networks of the proxies whose `trusted_header` counts.",
    )
    acting_users: list[str] = Field(
        default=[],
        description="Users of `trusted_header` who may act; `*` is everyone. The others may read.",
    )
    read_only: bool = Field(
        default=False, description="Whether all actions are refused, whatever token or user a request has."
    )
    refresh_seconds: Whole = Field(
        default=5, ge=1, le=3600, description="How often the state of the servers is read, and pages are refreshed."
    )

    @field_validator("token", "read_token")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < _SHORTEST_TOKEN:
            raise PydanticCustomError("token", "at least 16 characters, so that it cannot be guessed")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        for each in value:
            try:
                ip_network(each, strict=False)
            except ValueError:
                raise PydanticCustomError("network", "addresses or networks, such as 10.0.0.0/8") from None
        return value

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return address_of(self.listen)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        host = self.address[0]
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def authenticates(self) -> bool:
        """Whether users must say who they are."""
        return self.token is not None or self.read_token is not None or bool(self.trusted_header)
