"""docs/polling.md maps every key of PollingOutboxPublisher to a setting that exists, with the default that it has."""

from __future__ import annotations

import json

import pytest

from inorder.settings.root import Settings
from inorder.settings.sources import field_at
from tests.unit.docs.markdown import page, rows

PAGE = "docs/polling.md"

# The table of its README, and what its code has beside it.
SECTIONS = {
    "Kafka": [
        "ReloadOnChange",
        "SaslUsername",
        "Brokers",
        "SaslPassword",
        "SslCaLocation",
        "SslKeystorePassword",
        "SaslMechanism",
        "SecurityProtocol",
        "BatchSize",
        "LingerMs",
        "CompressionType",
        "MessageMaxBytes",
        "Acks",
        "ClientId",
    ],
    "BenchMarkOptions": ["IsPublishingOn"],
    "WorkerSettings": [
        "OutboxEventsBatchSize",
        "QueueWaitDuration",
        "MissingEventsBatchSize",
        "MissingEventsWaitDuration",
        "MissingEventsMaxRetryCount",
        "BrokerErrorsMaxRetryCount",
        "RedeliveryDelayAfterError",
    ],
    "": ["ConnectionString", "ReadOnlyConnectionString", "Serilog", "UseDbCredentialsFile"],
    "Couchbase": ["Host", "Username", "Bucket", "Scope", "Password"],
    "DataStoreSettings": ["DatabaseType", "OutboxEvents", "MissingEvents", "ExceededEvents", "OutboxOffset"],
    "MasterPodSettings": [
        "IsActive",
        "CacheName",
        "MasterPodLifetime",
        "MasterPodRaceInterval",
        "IsMasterPodCheckInterval",
    ],
    "Redis": ["Endpoints", "DefaultDatabase", "Config", "Password"],
    "CircuitBreakerSettings": ["IsEnabled", "Threshold", "DurationSc", "HalfOpenMaxAttempts"],
    "DbCredentialsFileSettings": ["FileName", "Host", "Database", "Port", "ApplicationName", "AdditionalParameters"],
}
ORIGINAL = [f"{section}.{key}".removeprefix(".") for section, keys in SECTIONS.items() for key in keys]


def mapped() -> dict[str, list[str]]:
    """The rows of the mapping, by the key of the original."""
    return {cells[0].strip("` |"): cells for cells in rows(page(PAGE)) if len(cells) >= 4}


@pytest.mark.parametrize("key", ORIGINAL)
def test_every_key_of_the_original_has_its_row(key: str) -> None:
    assert key in mapped()


def test_every_setting_that_is_named_exists_and_has_the_default_that_is_told() -> None:
    relay = Settings.load(relay={"strategy": "polling", "layout": "trendyol"})
    for original, (_, ours, _, default, *_) in mapped().items():
        name = ours.strip("`")
        if name == "none" or name.startswith('kafka."') or original == "none":
            continue
        path = tuple(name.split("."))
        assert field_at(Settings, path) is not None, name
        value: object = relay
        for part in path:
            value = getattr(value, part)
        if path[:2] == ("relay", "polling") or name in ("relay.batch_size", "relay.table", "relay.lease.lifetime_ms"):
            assert default.strip("`") == (value if isinstance(value, str) else json.dumps(value)), name


def test_the_page_is_in_the_navigation() -> None:
    assert "polling.md" in page("mkdocs.yml")
