"""The Redis client, and its errors as inorder's: classified by class, never by text."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inorder.model.errors import AuthenticationError, ConfigurationError, InorderError, TransientError, UnreachableError

try:
    import redis
    from redis import exceptions
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "relay.leadership = 'redis' needs the package redis, which is not installed.",
        hint="Install it with `pip install 'inorder[redis]'`.",
    ) from error

# A response takes a millisecond; the lease is a hint, so a relay that waits longer than this rather asks again.
ANSWER_SECONDS = 2.0

# The first match counts: the client makes some refusals subclasses of ConnectionError.
FAMILIES: Final[tuple[tuple[type[exceptions.RedisError], type[InorderError]], ...]] = (
    (exceptions.AuthenticationError, ConfigurationError),
    (exceptions.AuthorizationError, ConfigurationError),
    (exceptions.ConnectionError, UnreachableError),
    (exceptions.TimeoutError, UnreachableError),
    (exceptions.ReadOnlyError, TransientError),  # a failover is under way
    (exceptions.ClusterDownError, TransientError),
    (exceptions.TryAgainError, TransientError),
    (exceptions.NoScriptError, TransientError),
    (exceptions.OutOfMemoryError, TransientError),
    (exceptions.ResponseError, ConfigurationError),  # no permission for a command or a key, a key of another type
    (exceptions.RedisError, TransientError),
)

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of redis.url is running; it is retried.",
    TransientError: "It is retried.",
    ConfigurationError: "Check redis.url and the permissions of its user.",
}

# What the client does not call by the name that people search for.
_MEANINGS: Final[tuple[tuple[type[exceptions.RedisError], str], ...]] = (
    (exceptions.AuthenticationError, "authentication failed"),
    (exceptions.AuthorizationError, "permission denied"),
    (exceptions.NoPermissionError, "permission denied"),
    (exceptions.TimeoutError, "timed out"),
)


def connect(url: str, answer_seconds: float = ANSWER_SECONDS) -> redis.Redis:
    """A client for a URL; it connects when first used, and again after the connection broke."""
    try:
        # The relay itself retries, so the client must not.
        client: redis.Redis = redis.Redis.from_url(
            url,
            socket_timeout=answer_seconds,
            socket_connect_timeout=answer_seconds,
            retry=None,
            client_name="inorder-relay",
        )
        client.connection_pool.make_connection()  # connects nowhere, and refuses options that the client does not know
    except TypeError as error:
        raise ConfigurationError(
            f"redis.url has an option that the client does not know: {error}.",
            hint="For TLS: rediss://host:6379/0?ssl_ca_certs=/etc/ssl/ca.pem, with a client certificate "
            "&ssl_certfile=…&ssl_keyfile=….",
        ) from None
    except ValueError:
        # The client quotes what it cannot parse, which may be a part of the password.
        raise ConfigurationError(
            "redis.url cannot be parsed.", hint="Write it like redis://user:password@host:6379/0."
        ) from None
    return client


@contextmanager
def redis_errors() -> Iterator[None]:
    """Raises the client's errors as inorder's, with the original as the cause."""
    try:
        yield
    except exceptions.RedisError as error:
        if isinstance(refusal := error.__context__, ssl.SSLError):
            raise AuthenticationError(
                f"Redis: authentication failed: TLS: {refusal.reason or refusal}.",
                hint="Check ssl_ca_certs, ssl_certfile and ssl_keyfile in redis.url.",
            ) from error
        family = next(ours for theirs, ours in FAMILIES if isinstance(error, theirs))
        meaning = next((f"{text}: " for kind, text in _MEANINGS if isinstance(error, kind)), "")
        raise family(f"Redis: {meaning}{str(error).rstrip('.')}.", hint=_HINTS[family]) from error
