"""[kafka]: properties of librdkafka, passed through as they are.

Keys have dots, so they are quoted in the file: `"bootstrap.servers" = "127.0.0.1:9092"`. In a variable each
dot is an underscore: `INORDER_KAFKA__BOOTSTRAP_SERVERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    model_validator,
)
from pydantic_core import PydanticCustomError

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
