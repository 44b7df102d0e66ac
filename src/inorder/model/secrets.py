"""Which values are secrets, and how they are shown: one masking for every URL, property and text.

It hides too much rather than too little. A URL that cannot be read with certainty loses everything that could be a part
of its password: drivers split a URL at other places than people do, and each quotes what it could not parse. So an
unescaped `@`, `/`, `?` or `#` that a driver would read as the end of the password is refused (`is_ambiguous`) before a
driver sees it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOSTS: Final = re.compile(r"(?:(?:\[[0-9A-Fa-f:.%]*\]|[^:,@\[\]]*)(?::\d*)?(?:,|\Z))*")
_SECRET_PARAMETER: Final = re.compile(r"([?&;][^=&;]*?(?:pass(?!file)|pwd|secret|token)[^=&;]*=).+", re.I | re.S)
_SECRET_NAME: Final = re.compile(
    r"pas[sw]|pwd|secret|token|credential|jaas|private\.?key|access\.?key|key\.pem|keystore\.key|oauthbearer\.config",
    re.I,
)
_HARMLESS_ENDING: Final = re.compile(r"\.(?:url|ms|id|location|class|enabled?|scope|iss|aud)\Z", re.I)
_URL_IN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*@[^\s\"'<>]*")
_SECRET_IN_TEXT: Final = re.compile(r"(\b[\w.-]*(?:password|passwd|secret|token)[\w.-]*\s*=\s*)[^\s,;&)]+", re.I)


def mask_url(url: str) -> str:
    """The URL without its passwords; `***` for text that is no URL.

    >>> mask_url("postgresql+psycopg://shop:p@ss/#?word@db:5432/shop")
    'postgresql+psycopg://shop:***@db:5432/shop'
    >>> mask_url("redis://cache/0?password=hunter2&db=1")
    'redis://cache/0?password=***'
    >>> mask_url("cassandra://one,two:9042/journals")
    'cassandra://one,two:9042/journals'
    >>> mask_url("postgresql+psycopg://shop:hunter2/shop")
    'postgresql+psycopg://shop:***'
    """
    scheme, mark, rest = url.partition("://")
    if not mark or not _SCHEME.fullmatch(scheme):
        return MASK
    if not scheme.startswith("sqlite"):
        rest = _mask_login(rest)
    return f"{scheme}://" + _SECRET_PARAMETER.sub(rf"\1{MASK}", rest)


def _mask_login(rest: str) -> str:
    # Up to the last @, so that the tail of a password with an unescaped @ is masked, too.
    login, at, address = rest.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        return f"{user}:{MASK}@{address}" if colon else rest
    # Without an @, a word where the port should be may be a password whose host was forgotten.
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return rest if _HOSTS.fullmatch(authority) else f"{rest.partition(':')[0]}:{MASK}"


def mask_text(text: str) -> str:
    """A text without the passwords of URLs in it, and without values of `password=…`, `secret=…` and `token=…`."""
    return _SECRET_IN_TEXT.sub(rf"\1{MASK}", _URL_IN_TEXT.sub(lambda found: mask_url(found[0]), text))


def is_secret(name: str) -> bool:
    """Whether the value of a property of this name must never be printed; also where the name is misspelt."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_ENDING.search(name)


def mask_value(value: Any, name: str = "") -> Any:
    """A value of a setting or property as it may be shown; mappings and lists with each of their values masked."""
    if name and is_secret(name):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: mask_value(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask_value(each) for each in value]
    return value


# SQLAlchemy ends the password at the first @, urlsplit the whole login at the first of / ? and #.
_SQLALCHEMY_LOGIN: Final = re.compile(r"[^:/]*(:[^@]*)?@")
_URLSPLIT_SCHEMES: Final = frozenset({"redis", "rediss", "unix", "cassandra"})


def is_ambiguous(url: str) -> bool:
    """Whether a driver would read a part of the password as a host, a port, a database or an option.

    >>> is_ambiguous("postgresql+psycopg://shop:pa#ss@db/shop"), is_ambiguous("postgresql+psycopg://shop:p@ss@db/shop")
    (False, True)
    >>> is_ambiguous("redis://:pa#ss@cache/0"), is_ambiguous("redis://:pa%23ss@cache/0")
    (True, False)
    """
    scheme, _, rest = url.partition("://")
    if scheme in _URLSPLIT_SCHEMES:
        authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
        hosts, tail = authority.rpartition("@")[2], rest[len(authority) :]
        return not _HOSTS.fullmatch(hosts) or (bool(authority) and _holds_a_rest(tail)) or "#" in tail
    if scheme.startswith("sqlite"):
        return False
    login = _SQLALCHEMY_LOGIN.match(rest)
    address = rest[login.end() :] if login else rest
    hosts = re.split(r"[/?]", address, maxsplit=1)[0]
    has_password = login is not None and login[1] is not None
    return not _HOSTS.fullmatch(hosts) or (has_password and _holds_a_rest(address[len(hosts) :]))


def _holds_a_rest(tail: str) -> bool:
    """Whether what follows the hosts may be the rest of a password."""
    path, _, query = tail.partition("?")
    return "@" in path or any("=" not in part for part in query.split("&") if part)
