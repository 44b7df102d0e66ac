"""Both Kafka clients reach the same cluster from one section of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.kafka.java_client import java_properties
from inorder.model.errors import ConfigurationError


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


TLS = {"bootstrap.servers": "a:1", "security.protocol": "ssl"}
LOGIN = {"bootstrap.servers": "a:1", "security.protocol": "sasl_ssl"}
KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----"


def test_an_authority_in_the_settings_themselves_becomes_a_trust_store(tmp_path: Path) -> None:
    assert java_properties({**TLS, "ssl.ca.pem": CERTIFICATE})["ssl.truststore.certificates"] == CERTIFICATE
    (tmp_path / "ca.pem").write_text("OTHER")
    both = java_properties({**TLS, "ssl.ca.pem": CERTIFICATE, "ssl.ca.location": str(tmp_path / "ca.pem")})
    assert both["ssl.truststore.certificates"] == f"{CERTIFICATE}\nOTHER"
    assert "ssl.truststore.location" not in both


@pytest.mark.parametrize("form", ["pem", "location", "one file"])
def test_a_certificate_and_its_key_become_a_key_store(form: str, tmp_path: Path) -> None:
    given = {"ssl.key": KEY, "ssl.certificate": CERTIFICATE}
    if form == "one file":
        given = dict.fromkeys(given, f"{KEY}\n{CERTIFICATE}\n")
    if form != "pem":
        for name, text in given.items():
            (tmp_path / name).write_text(text)
        given = {f"{name}.location": str(tmp_path / name) for name in given}
    else:
        given = {f"{name}.pem": text for name, text in given.items()}
    found = java_properties({**TLS, **given, "ssl.key.password": "secret"})
    assert found["ssl.keystore.type"] == "PEM"
    assert found["ssl.keystore.key"] == KEY
    assert found["ssl.keystore.certificate.chain"] == CERTIFICATE
    assert found["ssl.key.password"] == "secret"


def test_a_key_store_stays_one() -> None:
    found = java_properties({**TLS, "ssl.keystore.location": "k.p12", "ssl.keystore.password": "secret"})
    assert (found["ssl.keystore.type"], found["ssl.keystore.location"]) == ("PKCS12", "k.p12")
    assert (found["ssl.keystore.password"], found["ssl.key.password"]) == ("secret", "secret")


@pytest.mark.parametrize(("given", "wanted"), [("none", ""), ("https", "https")])
def test_the_check_of_the_host_name_stays_as_it_is(given: str, wanted: str) -> None:
    found = java_properties({**TLS, "ssl.endpoint.identification.algorithm": given})
    assert found["ssl.endpoint.identification.algorithm"] == wanted


def test_kerberos_logs_in_by_keytab_or_by_the_cache_of_tickets() -> None:
    given = {**LOGIN, "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "broker"}
    by_keytab = java_properties({**given, "sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "me@REALM"})
    assert by_keytab["sasl.jaas.config"] == (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/k" '
        'principal="me@REALM";'
    )
    assert by_keytab["sasl.kerberos.service.name"] == "broker"
    assert "useTicketCache=true" in java_properties(LOGIN)["sasl.jaas.config"], "GSSAPI is librdkafka's default"


def test_tokens_of_a_provider_are_fetched_by_the_java_client_too() -> None:
    given = {
        **LOGIN,
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": 'se"cret',
        "sasl.oauthbearer.scope": "all",
        "sasl.oauthbearer.extensions": "cluster=c,pool=p",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens",
    }
    found = java_properties(given)
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://tokens"
    assert found["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert found["sasl.jaas.config"].endswith(
        'required clientId="me" clientSecret="se\\"cret" scope="all" extension_cluster="c" extension_pool="p";'
    )


def test_unsecured_tokens_name_their_principal() -> None:
    given = {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True}
    found = java_properties({**given, "sasl.oauthbearer.config": "principal=me"})
    assert found["sasl.jaas.config"].endswith('required unsecuredLoginStringClaim_sub="me";')


REFUSED = [
    ({**TLS, "ssl.crl.location": "crl.pem"}, "ssl.crl.location"),
    ({**TLS, "ssl.engine.location": "engine.so"}, "ssl.engine.location"),
    ({**TLS, "enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification"),
    ({**TLS, "ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}, "ssl.cipher.suites"),
    ({**TLS, "ssl.key.pem": KEY.replace("PRIVATE", "RSA PRIVATE"), "ssl.certificate.pem": CERTIFICATE}, "ssl.key.pem"),
    ({**TLS, "ssl.key.pem": KEY}, "ssl.key.pem"),
    ({**TLS, "ssl.ca.location": "/"}, "ssl.ca.location"),
    ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism"),
    ({**LOGIN, "sasl.mechanism": "EXTERNAL"}, "sasl.mechanism"),
    ({**LOGIN, "sasl.kerberos.kinit.cmd": "kinit me"}, "sasl.kerberos.kinit.cmd"),
    (
        {
            **LOGIN,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": "https://tokens",
            "sasl.oauthbearer.assertion.file": "token",
        },
        "sasl.oauthbearer.assertion.file",
    ),
]


@pytest.mark.parametrize(("given", "name"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_the_java_client_cannot_do_is_refused_by_name(given: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        java_properties(given)
    assert f'"{name}"' in caught.value.message
    assert "[pipeline.kafka_java]" in caught.value.hint
    family = "sasl.jaas.config" if name.startswith("sasl.") else "ssl.engine.factory.class"
    assert java_properties(given, {family: "mine"})[family] == "mine"


def test_properties_without_effect_are_not_refused() -> None:
    """Those of another mechanism, and those of TLS on a connection without it."""
    java_properties({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.kerberos.kinit.cmd": "kinit me"})
    java_properties({"bootstrap.servers": "a:1", "ssl.crl.location": "crl.pem"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.location"):
        java_properties({**TLS, "ssl.key.location": str(tmp_path / "none"), "ssl.certificate.pem": CERTIFICATE})


def test_properties_of_the_java_client_itself_go_over_the_translation() -> None:
    found = java_properties(
        {**TLS, "ssl.ca.location": "ca.pem"}, {"ssl.truststore.location": "t.jks", "fetch.max.bytes": 5}
    )
    assert found["ssl.truststore.location"] == "t.jks"
    assert found["fetch.max.bytes"] == "5"
