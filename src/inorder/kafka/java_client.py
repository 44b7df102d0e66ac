"""Properties of librdkafka, translated for the Java client with which Spark reads.

The two clients name the same things differently, and each can do what the other cannot. Only what decides how the
cluster is reached is translated: addresses, TLS and login. Tuning properties mean different things in the two clients
and stay with librdkafka.

| [kafka]                                        | Java client                                                         |
|---|---|
| `ssl.ca.location`, `ssl.ca.pem`                | a trust store of type PEM                                           |
| `ssl.certificate.*` and `ssl.key.*`            | a key store of type PEM; the key must be PKCS#8                     |
| `ssl.keystore.*`                               | the same file, PKCS#12                                              |
| PLAIN, SCRAM                                   | the login module of the mechanism                                   |
| GSSAPI                                         | Krb5LoginModule with the keytab, or with the ticket cache           |
| OAUTHBEARER, method `oidc`                     | OAuthBearerLoginModule and its callback handler                     |
| OAUTHBEARER with unsecured tokens              | OAuthBearerLoginModule with the claim `sub`                         |

A property that begins like one of TLS or login and is not translated is refused by name: a connection without it would
be another one than the settings say. [pipeline.kafka_java] has properties of the Java client itself; they are added to
the translation and win over it. Where it has one of TLS, nothing of TLS is refused, since its author knows both
clients; the same holds for the login.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inorder.model.errors import ConfigurationError

_SAME: Final = ("bootstrap.servers", "client.id", "allow.auto.create.topics")

_TLS: Final = ("ssl.", "enable.ssl.")
_LOGINS: Final = {"GSSAPI": ("sasl.kerberos.",), "OAUTHBEARER": ("sasl.oauthbearer.", "https.")}
"""Properties that matter only with their mechanism."""

_KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_PASSWORD_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_HINT: Final = (
    'Set pipeline.engine = "resident", which reads with librdkafka, or name the properties of the Java client that do '
    "the same in [pipeline.kafka_java]."
)


def java_properties(properties: Mapping[str, object], more: Mapping[str, object] | None = None) -> dict[str, str]:
    """The Java client's properties for a cluster that librdkafka reaches with `properties`; `more` go over them.

    Raises `ConfigurationError` for properties of TLS or login that it cannot translate. The files of
    `ssl.certificate.location` and `ssl.key.location` are read, so that only the driver needs them; those of
    `ssl.ca.location`, `ssl.keystore.location` and `sasl.kerberos.keytab` stay paths, which every executor needs.
    """
    extra = {name: _text(value) for name, value in (more or {}).items()}
    source = _Given({name: _text(value) for name, value in properties.items()})
    found = {name: value for name in _SAME if (value := source.take(name))}
    protocol = (source.take("security.protocol") or "").upper()
    found |= {"security.protocol": protocol} if protocol else {}
    tls, login = _tls(source), _login(source) if protocol.startswith("SASL") else {}
    if protocol.endswith("SSL") and not _names(extra, "ssl."):
        _refuse([*source.faults_of(_TLS), *source.left(_TLS)])
    if login and not _names(extra, "sasl."):
        mine = _LOGINS.get(login["sasl.mechanism"], ())
        _refuse([*source.faults_of(("sasl.",)), *source.left(mine)])
    return found | tls | login | extra


def _names(properties: Mapping[str, str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in properties)


@dataclass(slots=True)
class _Given:
    """Properties of librdkafka, and those of them that are translated or do not matter."""

    given: Mapping[str, str]
    taken: set[str] = field(default_factory=set)
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Properties whose value has no translation, and why."""

    def take(self, *names: str) -> str | None:
        """The value of the first of the names that is given; all of them count as translated."""
        self.taken.update(names)
        return next((self.given[name] for name in names if name in self.given), None)

    def fault(self, name: str, reason: str) -> None:
        self.faults.append((name, reason))

    def faults_of(self, prefixes: tuple[str, ...]) -> list[tuple[str, str]]:
        return [fault for fault in self.faults if fault[0].startswith(prefixes)]

    def left(self, prefixes: tuple[str, ...]) -> list[tuple[str, str]]:
        """What is not translated."""
        left = [name for name in self.given if name.startswith(prefixes) and name not in self.taken]
        return [(name, "the Java client has nothing like it") for name in left]


def _refuse(refused: list[tuple[str, str]]) -> None:
    if refused:
        named = "; ".join(f'"{name}" ({reason})' for name, reason in refused)
        raise ConfigurationError(
            f'Spark reads with the Java client (pipeline.engine = "micro-batch"), for which these properties of '
            f"[kafka] cannot be translated: {named}.",
            hint=_HINT,
        )


# TLS.


def _tls(source: _Given) -> dict[str, str]:
    found = _trust_store(source) | _key_store(source)
    match (source.take("ssl.endpoint.identification.algorithm") or "").lower():
        case "none":
            found["ssl.endpoint.identification.algorithm"] = ""
        case "https":
            found["ssl.endpoint.identification.algorithm"] = "https"
    if _is_false(source.take("enable.ssl.certificate.verification")):
        source.fault("enable.ssl.certificate.verification", "the Java client always verifies certificates")
    if suites := source.take("ssl.cipher.suites"):
        names = [name for name in re.split(r"[:, ]+", suites) if name]
        if all(name.startswith("TLS_") for name in names):
            found["ssl.cipher.suites"] = ",".join(names)
        else:
            source.fault("ssl.cipher.suites", "the Java client has other names for suites before TLS 1.3")
    return found


def _trust_store(source: _Given) -> dict[str, str]:
    inline, location = source.take("ssl.ca.pem"), source.take("ssl.ca.location")
    if location == "probe":  # librdkafka looks for the system's authorities, the Java client has its own
        location = None
    if location is not None and Path(location).is_dir():
        source.fault("ssl.ca.location", "it is a folder; the Java client needs one file")
        return {}
    if inline is None:
        return {} if location is None else {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    known = inline if location is None else f"{inline}\n{_read('ssl.ca.location', location)}"
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": known}


def _key_store(source: _Given) -> dict[str, str]:
    password = source.take("ssl.key.password")
    if location := source.take("ssl.keystore.location"):
        secret = source.take("ssl.keystore.password") or ""
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": location,
            "ssl.keystore.password": secret,
            "ssl.key.password": secret,
        }
    source.take("ssl.keystore.password")
    key, certificate = _pem(source, "ssl.key"), _pem(source, "ssl.certificate")
    if key is None or certificate is None:
        for name in ("ssl.key", "ssl.certificate"):
            for each in (f"{name}.location", f"{name}.pem"):
                if each in source.given:
                    source.fault(each, "a key needs its certificate, and a certificate its key")
        return {}
    name, text = key
    if not re.search(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", text):
        source.fault(name, "the key is not PKCS#8; `openssl pkcs8 -topk8 -nodes` converts it")
        return {}
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": _block(text, "PRIVATE KEY"),
        "ssl.keystore.certificate.chain": _block(certificate[1], "CERTIFICATE"),
    }
    return found if password is None else {**found, "ssl.key.password": password}


def _pem(source: _Given, name: str) -> tuple[str, str] | None:
    """The property and the text of a key or certificate."""
    if inline := source.take(f"{name}.pem"):
        source.take(f"{name}.location")
        return f"{name}.pem", inline
    if location := source.take(f"{name}.location"):
        return f"{name}.location", _read(f"{name}.location", location)
    return None


def _block(text: str, kind: str) -> str:
    """The parts of a PEM text of one kind; a file may have key and certificates."""
    blocks = re.findall(rf"-----BEGIN [A-Z ]*{kind}-----.*?-----END [A-Z ]*{kind}-----", text, re.DOTALL)
    return "\n".join(blocks) if blocks else text


def _read(name: str, location: str) -> str:
    try:
        return Path(location).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f'kafka."{name}": {location} cannot be read ({error}).', hint="It must be a file in PEM format."
        ) from error


# The login.


def _login(source: _Given) -> dict[str, str]:
    mechanism = (source.take("sasl.mechanisms", "sasl.mechanism") or "GSSAPI").upper()
    translate: Callable[[_Given], dict[str, str]] | None = {"GSSAPI": _kerberos, "OAUTHBEARER": _oauth}.get(mechanism)
    if mechanism in _PASSWORD_MODULES:
        user, password = source.take("sasl.username") or "", source.take("sasl.password") or ""
        login = _module(_PASSWORD_MODULES[mechanism], username=user, password=password)
        found = {"sasl.jaas.config": login}
    elif translate is not None:
        found = translate(source)
    else:
        found = {}
        source.fault("sasl.mechanism", f"{mechanism} is not a mechanism of the Java client")
    return {"sasl.mechanism": mechanism, **found}


def _kerberos(source: _Given) -> dict[str, str]:
    """The Java client renews tickets by itself, so a command for that is not needed where there is a keytab."""
    keytab, principal = source.take("sasl.kerberos.keytab"), source.take("sasl.kerberos.principal")
    named = {} if principal is None else {"principal": principal}
    if keytab is not None:
        source.take("sasl.kerberos.kinit.cmd")
        login = _module(_KERBEROS, useKeyTab=True, storeKey=True, keyTab=keytab, **named)
    else:
        login = _module(_KERBEROS, useTicketCache=True, **named)
    service = source.take("sasl.kerberos.service.name") or "kafka"
    found = {"sasl.jaas.config": login, "sasl.kerberos.service.name": service}
    if pause := source.take("sasl.kerberos.min.time.before.relogin"):
        found["sasl.kerberos.min.time.before.relogin"] = pause
    return found


def _oauth(source: _Given) -> dict[str, str]:
    method = (source.take("sasl.oauthbearer.method") or "default").lower()
    is_unsecured = _is_true(source.take("enable.sasl.oauthbearer.unsecure.jwt"))
    if method == "oidc":
        return _oidc(source)
    if is_unsecured:
        return _unsecured(source)
    source.fault("sasl.mechanism", "without the method `oidc` the tokens of OAUTHBEARER come from a program")
    return {}


def _oidc(source: _Given) -> dict[str, str]:
    options = {
        "clientId": source.take("sasl.oauthbearer.client.id") or "",
        "clientSecret": source.take("sasl.oauthbearer.client.secret") or "",
    }
    if scope := source.take("sasl.oauthbearer.scope"):
        options["scope"] = scope
    for pair in filter(None, (source.take("sasl.oauthbearer.extensions") or "").split(",")):
        name, _, value = pair.partition("=")
        options[f"extension_{name.strip()}"] = value.strip()
    url = source.take("sasl.oauthbearer.token.endpoint.url")
    if not url:
        source.fault("sasl.oauthbearer.token.endpoint.url", "the method `oidc` needs it")
        return {}
    return {
        "sasl.jaas.config": _module(_OAUTH, **options),
        "sasl.login.callback.handler.class": _OAUTH_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def _unsecured(source: _Given) -> dict[str, str]:
    """Tokens without a signature, for tests: `principal=NAME`."""
    config = source.take("sasl.oauthbearer.config") or ""
    pairs = dict(pair.partition("=")[::2] for pair in config.split())
    if set(pairs) != {"principal"}:
        source.fault("sasl.oauthbearer.config", "of unsecured tokens only principal=NAME is translated")
        return {}
    return {"sasl.jaas.config": _module(_OAUTH, unsecuredLoginStringClaim_sub=pairs["principal"])}


def _module(name: str, **options: str | bool) -> str:
    """The text by which the Java client loads a login module."""
    rendered = [f"{option}={_option(value)}" for option, value in options.items()]
    return " ".join([name, "required", *rendered]) + ";"


def _option(value: str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() in ("true", "t", "1")


def _is_false(value: str | None) -> bool:
    return value is not None and value.lower() in ("false", "f", "0")
