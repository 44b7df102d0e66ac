"""[kafka], [database], [redis], [health] and [log]: the servers a process connects to, and how it reports.

[kafka] passes properties of librdkafka to the client. Their names have dots, so they are quoted in the file:
`"bootstrap.servers" = "127.0.0.1:9092"`. In a variable each dot is an underscore: `INORDER_KAFKA__BOOTSTRAP_SERVERS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
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

from inorder.database.credentials import add_credentials_file, read_login
from inorder.model.errors import ConfigurationError
from inorder.model.secrets import is_secret, mask_value
from inorder.settings.section import SecretUrl, Section, check_scheme, require_url

Property = bool | int | float | str

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"

# inorder sets these itself; its guarantees depend on their values.
RESERVED = {
    "auto.offset.reset": "the pipeline starts from its pointers",
    "delivery.report.only.error": "the relay needs every delivery report",
    "enable.auto.commit": "the pointer in the target database decides",
    "enable.auto.offset.store": "the pointer in the target database decides",
    "enable.partition.eof": "the relay needs it to find the end of its marker topic",
    "group.id": "it is derived from relay.group",
    "isolation.level": "readers must see committed records only",
    "partitioner": "it is set per topic, in [topics.NAME]",
    "transactional.id": "it is derived from relay.group and the shard; the broker fences by it",
}


# Strict and from the left: a smart union would read plain text as a secret and `true` as 1.
_Stored = Annotated[StrictStr | StrictBool | StrictInt | StrictFloat | SecretStr, Field(union_mode="left_to_right")]


class KafkaSettings(RootModel[dict[str, _Stored]]):
    """How to connect to Kafka: any librdkafka property. Secrets are masked wherever they are printed."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    defaults: ClassVar[Mapping[str, Property]] = {"bootstrap.servers": BOOTSTRAP_DEFAULT}
    reserved: ClassVar[Mapping[str, str]] = RESERVED

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        flat = {**cls.defaults, **flatten(raw)}
        for name, value in flat.items():
            _check(name, value, cls.reserved)
        return {name: SecretStr(str(value)) if _hide(name, value) else value for name, value in flat.items()}

    @property
    def bootstrap_servers(self) -> str:
        return str(self.properties["bootstrap.servers"])

    @property
    def properties(self) -> dict[str, Property]:
        """All properties for the client, with secrets in plain text: never print them."""
        return {name: _clear(value) for name, value in self.root.items()}


class JavaClientSettings(KafkaSettings):
    """Properties of the Java client, over what is translated of [kafka]."""

    defaults: ClassVar[Mapping[str, Property]] = {}
    reserved: ClassVar[Mapping[str, str]] = {
        "bootstrap.servers": "it is that of [kafka]",
        "auto.offset.reset": "the pipeline starts from its pointers",
        "enable.auto.commit": "the pointer in the target database decides",
        "group.id": "Spark makes one for each query",
        "isolation.level": "readers must see committed records only",
        "key.deserializer": "Spark takes bytes",
        "value.deserializer": "Spark takes bytes",
    }


def flatten(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins nested tables: TOML parses unquoted dotted keys into them, and they mean the same property."""
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _hide(name: str, value: object) -> bool:
    """Whether a value is a secret: by its name, or because it is a URL with a password."""
    return not isinstance(value, SecretStr) and (is_secret(name) or mask_value(value) != value)


def _clear(value: SecretStr | Property) -> Property:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


# Who sets one of these runs code with the rights of the process. The Java client knows the last one, too.
_BRINGS_CODE = {
    "plugin.library.paths": "loads code into the process",
    "ssl.engine.location": "loads code into the process",
    "ssl.providers": "loads code into the process",
    "sasl.kerberos.kinit.cmd": "runs a command in a shell",
}
ALLOW_PLUGINS = "INORDER_ALLOW_PLUGINS"


def _check(name: str, value: object, reserved: Mapping[str, str]) -> None:
    if name in _BRINGS_CODE and os.environ.get(ALLOW_PLUGINS) != "1":
        reason = {"name": name, "what": _BRINGS_CODE[name], "variable": ALLOW_PLUGINS}
        raise PydanticCustomError("property", "{what}; set {variable}=1 to allow it", reason)
    if name in reserved:
        reason = {"name": name, "reason": reserved[name]}
        raise PydanticCustomError("reserved", "is set by inorder itself ({reason}); leave it out", reason)
    if not isinstance(value, Property | SecretStr):
        raise PydanticCustomError("property", "must be text, a number or a boolean", {"name": name})


# Only the drivers that inorder depends on; SQLAlchemy's bare `postgresql://` would mean psycopg2.
DATABASE_SCHEMES = ("postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql", "sqlite")


class DatabaseSettings(Section):
    """The database of your transactions."""

    url: SecretUrl | None = Field(
        default=None,
        description=(
            "SQLAlchemy URL of the database that holds the outbox and the tables the pipeline writes, such "
            "as `postgresql+psycopg://user@host/db`. Several hosts, `user@one:5432,two:5432/db`, are tried in turn, "
            "and the first that accepts writes is used. Other schemes are "
            "`mysql+pymysql`, `mariadb+pymysql` and `sqlite`. The password is masked wherever inorder prints it; "
            "`INORDER_DATABASE__URL` keeps it "
            "out of the file. There is no default; a command that needs the database fails without it."
        ),
    )

    read_only_url: SecretUrl | None = Field(
        default=None,
        description=(
            "Strategy `polling`: URL of a replica from which the events of the outbox are read, of the same kind as "
            "`url`. It may lag behind. Offset, missing and exceeded events are read and written at `url`, and so is "
            "everything that decides that an event will never come. Without it all reads go to `url`."
        ),
    )
    single_writer_node: StrictBool = Field(
        default=False,
        description=(
            "Relay: the database is a cluster with several primaries (Galera, Group Replication in multi-primary mode, "
            "BDR), and all writers of the outbox and the relay use one node of it. Without it the relay refuses such a "
            "cluster, because each node has its own ids and locks."
        ),
    )
    credentials_file: Path | None = Field(
        default=None,
        description=(
            "A file with `user` and `password`, as TOML or JSON, that replace those of `url` and `read_only_url`. It "
            "is read for each new connection, so a password may change while the relay runs."
        ),
    )

    @field_validator("url", "read_only_url", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return check_scheme(value, "a SQLAlchemy URL", DATABASE_SCHEMES)

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
        """The URL with its password; raises `ConfigurationError` where none is set."""
        return self._with_credentials(require_url(self.url, "database", "postgresql+psycopg://user@host/db"))

    def reading_url(self) -> str:
        """The URL, with its password, from which the events of the outbox are read."""
        if self.read_only_url is None:
            return self.require_url()
        return self._with_credentials(self.read_only_url.get_secret_value())

    def _with_credentials(self, url: str) -> str:
        """Adds the path of the file to the URL, so that each connect reads the file again."""
        return url if self.credentials_file is None else add_credentials_file(url, self.credentials_file)


REDIS_SCHEMES = ("redis", "rediss", "unix")


class RedisSettings(Section):
    """The Redis that holds the lease, for `relay.leadership = "redis"` only; needs the extra `inorder[redis]`."""

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
        return check_scheme(value, "a URL", REDIS_SCHEMES)

    def require_url(self) -> str:
        """The URL with its password; raises `ConfigurationError` where none is set."""
        return require_url(self.url, "redis", "redis://host:6379/0")


HOST_DEFAULT = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):)?(?P<port>\d{1,5})")
_LAST_PORT = 65_535


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`, or of a port alone."""
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise ValueError(listen)
    return (found["host"] or HOST_DEFAULT).strip("[]"), int(found["port"])


def check_address(listen: str) -> str:
    """For settings that name an address, or none."""
    try:
        if listen:
            address_of(listen)
    except ValueError:
        expected = {"expected": "an address such as 127.0.0.1:13000, or a port alone"}
        raise PydanticCustomError("spelling", "{expected}", expected) from None
    return listen


class ObserveSettings(Section):
    """Traces. Metrics and health need no setting but `health.listen`."""

    traces: bool = Field(
        default=False,
        description=(
            "Whether OpenTelemetry traces are written: `inorder.Publisher` takes the context of the current span into "
            "the headers of each message (`inorder.Outbox(traces=True)` does so without settings), and relay and job "
            "`upsert` write the spans `send` and `apply` into the same trace. Needs the extra `otel`. Headers cost the "
            "relay about half of its rate, and the job reads them; off, nothing of it is imported."
        ),
    )


class HealthSettings(Section):
    """The health and metrics endpoint of a running relay or job. It has no password: keep the address private."""

    listen: Annotated[str, AfterValidator(check_address)] = Field(
        default="",
        description=(
            "The address to listen on, such as `127.0.0.1:13000`, or a port alone, which means `127.0.0.1`. "
            "`/health` answers 200 and `Pong` while `inorder relay run` or `inorder pipeline run` works, else 503 and "
            "the reason. `/readyz` says the same and whether each server answers, a line each, `/livez` answers 200 as "
            "long as the process does, `/metrics` is for Prometheus. An empty line over plain TCP is answered with "
            "`Pong` too. Empty: no endpoint."
        ),
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; None without an endpoint."""
        return address_of(self.listen) if self.listen else None


Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]


class LogSettings(Section):
    """Logs of the commands, on stderr. A program that uses the library keeps its own logging."""

    level: Level = Field(
        default="info",
        description="The lowest level that is logged. `debug` logs each batch; no level logs a payload.",
    )
    format: Format = Field(
        default="auto",
        description=(
            "`console` is for people, `json` for collectors, `auto` is console on a terminal and json elsewhere."
        ),
    )
