"""[kafka]: properties of librdkafka, passed through as they are.

Keys have dots, so they are quoted in the file: `"bootstrap.servers" = "127.0.0.1:9092"`. In a variable each
dot is an underscore: `INORDER_KAFKA__BOOTSTRAP_SERVERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from inorder.database.credentials import naming, read_login
from inorder.model.errors import ConfigurationError
from inorder.settings.section import SecretUrl, Section, required, with_known_scheme

Property = bool | int | float | str

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"

# Properties whose value is a secret, beside everything that ends in `.password` or `.secret`.
_SECRET = frozenset({"sasl.oauthbearer.config", "ssl.key.pem", "sasl.password"})
_SECRET_ENDINGS = (".password", ".secret")

# inorder sets these itself; its guarantees stand on their values.
RESERVED = {
    "auto.offset.reset": "the pipeline starts from its pointers",
    "delivery.report.only.error": "the relay asks for what it needs",
    "enable.auto.commit": "the pointer in the target database decides",
    "enable.auto.offset.store": "the pointer in the target database decides",
    "enable.partition.eof": "the relay needs it to find the end of its marker topic",
    "group.id": "it is made from relay.group",
    "isolation.level": "readers must see committed records only",
    "partitioner": "it is set per topic, in [topics.NAME]",
    "transactional.id": "it is made from relay.group and the shard; the broker fences by it",
}


def is_secret(name: str) -> bool:
    """Whether a property's value must never be printed."""
    return name in _SECRET or name.endswith(_SECRET_ENDINGS)


# From the left and strictly: a smart union would take plain text for a secret and `true` for 1.
_Stored = Annotated[StrictStr | StrictBool | StrictInt | StrictFloat | SecretStr, Field(union_mode="left_to_right")]


class KafkaSettings(RootModel[dict[str, _Stored]]):
    """How to reach Kafka: any librdkafka property. Secrets are masked in every print."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    defaults: ClassVar[Mapping[str, Property]] = {"bootstrap.servers": BOOTSTRAP_DEFAULT}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        flat = {**cls.defaults, **flatten(raw)}
        for name, value in flat.items():
            _check(name, value)
        return {name: SecretStr(str(value)) if _hide(name, value) else value for name, value in flat.items()}

    @property
    def bootstrap_servers(self) -> str:
        """The brokers to ask first."""
        return str(self.properties["bootstrap.servers"])

    @property
    def properties(self) -> dict[str, Property]:
        """Everything for the client, secrets in clear: never print it."""
        return {name: _clear(value) for name, value in self.root.items()}


def flatten(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Unquoted dotted keys come out of TOML as nested tables; both spellings mean the same property."""
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _hide(name: str, value: object) -> bool:
    return is_secret(name) and not isinstance(value, SecretStr)


def _clear(value: SecretStr | Property) -> Property:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _check(name: str, value: object) -> None:
    if name in RESERVED:
        reason = {"name": name, "reason": RESERVED[name]}
        raise PydanticCustomError("reserved", "is set by inorder itself ({reason}); leave it out", reason)
    if not isinstance(value, Property | SecretStr):
        raise PydanticCustomError("property", "must be text, a number or a boolean", {"name": name})


# [database]: where the outbox and the target tables live.

# The drivers inorder ships; SQLAlchemy's bare `postgresql://` would ask for one that it does not.
DATABASE_SCHEMES = ("postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql", "sqlite")


class DatabaseSettings(Section):
    """The database of your transactions."""

    url: SecretUrl | None = Field(
        default=None,
        description=(
            "SQLAlchemy URL of the database that holds the outbox and the tables the pipeline writes, such "
            "as `postgresql+psycopg://user@host/db`. The relay and the pipeline of this version need "
            "PostgreSQL; the outbox can also be written with `mysql+pymysql`, `mariadb+pymysql` and "
            "`sqlite`. The password is masked wherever inorder prints it; `INORDER_DATABASE__URL` keeps it "
            "out of the file. There is no default: a command that needs the database says so."
        ),
    )

    read_only_url: SecretUrl | None = Field(
        default=None,
        description=(
            "Strategy `polling`: URL of a replica from which the events of the outbox are read, of the same kind as "
            "`url`. It may lag behind. Offset, missing and exceeded events are read and written at `url`, and so is "
            "whatever decides that an event will never come. Without it everything goes to `url`."
        ),
    )
    credentials_file: Path | None = Field(
        default=None,
        description=(
            "A file with `user` and `password`, as TOML or JSON, that go into `url` and `read_only_url` in place of "
            "what stands there. It is read for each new connection, so a password may change while the relay "
            "runs."
        ),
    )

    @field_validator("url", "read_only_url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return with_known_scheme(value, "a SQLAlchemy URL", DATABASE_SCHEMES)

    @field_validator("credentials_file")
    @classmethod
    def _readable(cls, file: Path | None) -> Path | None:
        if file is not None:
            try:
                read_login(file)
            except ConfigurationError as error:
                raise PydanticCustomError("credentials", "{text}", {"text": error.message}) from None
        return file

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        return self._with_credentials(required(self.url, "database", "postgresql+psycopg://user@host/db"))

    def reading_url(self) -> str:
        """The URL in clear from which the events of the outbox are read."""
        if self.read_only_url is None:
            return self.require_url()
        return self._with_credentials(self.read_only_url.get_secret_value())

    def _with_credentials(self, url: str) -> str:
        """The path travels in the URL, so that whoever connects with it reads the file anew."""
        return url if self.credentials_file is None else naming(url, self.credentials_file)


# [redis]: where the lease lives, with leadership `redis`.

REDIS_SCHEMES = ("redis", "rediss", "unix")


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
        return with_known_scheme(value, "a URL", REDIS_SCHEMES)

    def require_url(self) -> str:
        """The URL in clear; raises `ConfigurationError` where none is set."""
        return required(self.url, "redis", "redis://host:6379/0")
