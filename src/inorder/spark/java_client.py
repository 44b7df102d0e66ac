"""One set of Kafka settings for two clients: librdkafka's properties as the Java client spells them.

Only what decides how to reach the cluster is carried over. Tuning properties mean different things in the two clients
and stay with librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping

_SAME = ("bootstrap.servers", "client.id", "security.protocol")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """The Java client's properties for a cluster that librdkafka reaches with `properties`."""
    found = {name: str(properties[name]) for name in _SAME if name in properties}
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    return found | _sasl(properties) | _tls(properties)


def _sasl(properties: Mapping[str, object]) -> dict[str, str]:
    mechanism = str(properties.get("sasl.mechanisms", properties.get("sasl.mechanism", "")))
    if mechanism not in _MODULES:
        return {}
    user, password = (_escaped(properties.get(f"sasl.{name}", "")) for name in ("username", "password"))
    login = f'{_MODULES[mechanism]} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"')


def _tls(properties: Mapping[str, object]) -> dict[str, str]:
    if "ssl.ca.location" not in properties:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(properties["ssl.ca.location"])}
