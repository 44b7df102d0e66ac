"""The Redis client and what its errors mean to us, decided by class and never by text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inorder.model.errors import ConfigurationError, InorderError, TransientError, UnreachableError

try:
    import redis
    from redis import exceptions
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "relay.leadership = 'redis' needs the package redis, which is not installed.",
        hint="Install it with `pip install 'inorder[redis]'`.",
    ) from error

# An answer takes a millisecond; a relay that waits longer than this for a hint had better ask again.
ANSWER_SECONDS = 2.0

# The first that fits; the client makes some refusals special cases of a lost connection.
FAMILIES: Final[tuple[tuple[type[exceptions.RedisError], type[InorderError]], ...]] = (
    (exceptions.AuthenticationError, ConfigurationError),
    (exceptions.AuthorizationError, ConfigurationError),
    (exceptions.ConnectionError, UnreachableError),
    (exceptions.TimeoutError, UnreachableError),
    (exceptions.ReadOnlyError, TransientError),  # a fail-over is under way
    (exceptions.ClusterDownError, TransientError),
    (exceptions.TryAgainError, TransientError),
    (exceptions.NoScriptError, TransientError),
    (exceptions.OutOfMemoryError, TransientError),
    (exceptions.ResponseError, ConfigurationError),  # no right to a command or a key, a key of another type
    (exceptions.RedisError, TransientError),
)

_HINTS: Final[dict[type[InorderError], str]] = {
    UnreachableError: "Check that the server of redis.url runs; it is asked again.",
    TransientError: "It is asked again.",
    ConfigurationError: "Check redis.url and the rights of its user.",
}


def connect(url: str, answer_seconds: float = ANSWER_SECONDS) -> redis.Redis:
    """A client for a URL; it connects when it is first used, and again after a connection broke."""
    try:
        # The relay itself asks again, so the client must not wait in between.
        return redis.Redis.from_url(
            url,
            socket_timeout=answer_seconds,
            socket_connect_timeout=answer_seconds,
            retry=None,
            client_name="inorder-relay",
        )
    except ValueError:
        # The client quotes what it cannot read, which may be a part of the password.
        raise ConfigurationError(
            "redis.url cannot be read.", hint="Write it like redis://user:password@host:6379/0."
        ) from None


@contextmanager
def redis_errors() -> Iterator[None]:
    """Turns the client's errors into ours, the original kept as the cause."""
    try:
        yield
    except exceptions.RedisError as error:
        family = next(ours for theirs, ours in FAMILIES if isinstance(error, theirs))
        raise family(f"Redis: {str(error).rstrip('.')}.", hint=_HINTS[family]) from error
