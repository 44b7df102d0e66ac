"""Both Kafka clients reach the same cluster from one section of settings."""

from __future__ import annotations

import pytest

from inorder.engines.session import java_properties


def test_the_address_is_carried_over_and_tuning_is_not() -> None:
    given = {"bootstrap.servers": "a:1,b:2", "linger.ms": 5, "queue.buffering.max.kbytes": 1}
    assert java_properties(given) == {"bootstrap.servers": "a:1,b:2"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_becomes_the_module_of_its_mechanism(mechanism: str) -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": mechanism,
        "sasl.username": "relay",
        "sasl.password": 'quo"te\\',
    }
    found = java_properties(given)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == mechanism
    assert 'username="relay" password="quo\\"te\\\\";' in found["sasl.jaas.config"]


def test_a_certificate_authority_becomes_a_trust_store() -> None:
    found = java_properties({"bootstrap.servers": "a:1", "ssl.ca.location": "ca.pem"})
    assert found["ssl.truststore.type"] == "PEM"
    assert found["ssl.truststore.location"] == "ca.pem"
