"""The breakers of a relay that runs elsewhere on this machine, as it tells them itself.

A breaker is open when the database cannot be reached, so it cannot be written down there. The relay tells it where it
tells its health; another process can only ask.
"""

from __future__ import annotations

from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from inorder.settings import Settings

BREAKER_METRIC = "inorder_relay_breaker_state"
ASK_SECONDS = 1.0


def told_breakers(settings: Settings) -> dict[str, str] | None:
    """The state of each breaker by its daemon; None where `health.listen` is not set or nobody answers there."""
    address = settings.health.address
    if address is None:
        return None
    host, port = address
    place = f"[{host}]" if ":" in host else host
    try:
        with urlopen(f"http://{place}:{port}/metrics", timeout=ASK_SECONDS) as answer:
            return breakers_in(answer.read().decode(), settings.relay.group)
    except (URLError, TimeoutError, ConnectionError):
        return None


def breakers_in(metrics: str, group: str) -> dict[str, str]:
    """The states that a page of metrics tells for a group."""
    families = text_string_to_metric_families(metrics)
    samples = (sample for family in families for sample in family.samples if sample.name == BREAKER_METRIC)
    return {
        sample.labels["daemon"]: sample.labels["state"]
        for sample in samples
        if sample.value and sample.labels["group"] == group
    }
