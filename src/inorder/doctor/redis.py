"""Redis: reachable, where the relay's leadership needs it."""

from __future__ import annotations

from inorder.doctor.check import Check, of_error, ok
from inorder.model.errors import InorderError
from inorder.settings import Settings


def examine_redis(settings: Settings) -> list[Check]:
    """Whether the lease can be asked for; nothing where it does not live there."""
    if settings.relay.leadership != "redis":
        return []
    try:
        # Here, because the package redis is an extra.
        from inorder.stores.redis.lease import holder_of

        holder = holder_of(settings.redis.require_url(), settings.relay.lease_name(0))
    except InorderError as error:
        return [of_error("leadership", error)]
    return [ok("leadership", f"{settings.redis.url} answers; {holder or 'nobody'} holds the lease")]
