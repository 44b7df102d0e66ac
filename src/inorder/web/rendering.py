"""Templates, and what they need to show numbers, times and charts. Everything that is inserted is escaped as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from inorder.model.printable import escape_controls
from inorder.operate.flow import counted, duration
from inorder.operate.watch import HOUR_SECONDS, Sample

CHART_WIDTH: Final = 240
CHART_HEIGHT: Final = 48
_LONGEST_IN_LIST: Final = 240
_SHORTEST_SECONDS: Final = 10.0
NOTHING: Final = "\N{EN DASH}"


def environment() -> Environment:
    """The templates of the site; they escape what they insert, whatever the file is called."""
    found = Environment(
        loader=PackageLoader("inorder.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printed,
    )
    found.filters |= {
        "ago": ago,
        "number": number,
        "duration": duration,
        "shown": shown,
        "brief": brief,
        "in_words": in_words,
        "rate": rate,
        "query": query,
        "utc": utc,
        "moment": moment,
        "counted": counted,
    }
    found.globals["chart"] = chart
    return found


def printed(value: Any) -> Any:
    """A text without control characters; markup of our own as it is."""
    return escape_controls(value, keep="\n\t") if type(value) is str else value


def number(value: float | None) -> str:
    """A number with thousands separated; a dash for none."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def ago(moment: str | datetime | None, now: datetime | None = None) -> str:
    """How long ago something was."""
    if moment is None:
        return NOTHING
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 1 else "now"


def moment(at: str | datetime | None) -> str:
    """A time in UTC, to the second."""
    if at is None:
        return NOTHING
    found = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def utc(milliseconds: int | None) -> str:
    """A time of Kafka's; producers may set any number, and one that is no time of ours is printed as it is."""
    if milliseconds is None:
        return NOTHING
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def shown(value: object) -> str:
    """Any value as text in which control characters can be seen; nothing as a dash."""
    if value is None or value == "":
        return NOTHING
    return escape_controls(str(value), keep="\n\t")


def brief(value: object) -> str:
    """The beginning of a long value, for a list; the page of the record has all of it.

    >>> brief("too large"), len(brief("x" * 100_000))
    ('too large', 240)
    """
    text = shown(value)
    return text if len(text) <= _LONGEST_IN_LIST else f"{text[: _LONGEST_IN_LIST - 1]}\N{HORIZONTAL ELLIPSIS}"


def in_words(pairs: Mapping[str, Any]) -> str:
    """Names with their values, lists without brackets.

    >>> in_words({"topic": "orders", "ids": [1, 2]}), in_words({})
    ('topic orders, ids 1 2', '')
    """
    values = ((name, value if isinstance(value, list) else [value]) for name, value in pairs.items())
    return ", ".join(f"{name} {' '.join(map(str, value))}" for name, value in values)


def rate(value: float) -> str:
    """Records a second, without digits that say nothing.

    >>> rate(0.0), rate(0.25), rate(1234.5)
    ('0', '0.2', '1,234')
    """
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def query(given: Mapping[str, Any]) -> str:
    """Parameters for a link; those without a value are left out."""
    return urlencode({name: value for name, value in given.items() if value not in (None, "")}, doseq=True)


def chart(samples: Sequence[Sample], now: float | None = None) -> dict[str, Any] | None:
    """The points of a line over the last hour, or less at first, the newest at the right; None for nothing to draw."""
    if len(samples) < 2:
        return None
    end = samples[-1][0] if now is None else now
    span = min(HOUR_SECONDS, max(end - samples[0][0], _SHORTEST_SECONDS))
    top = max(value for _, value in samples)
    points = []
    for at, value in samples:
        x = CHART_WIDTH * max(0.0, 1 - (end - at) / span)
        y = CHART_HEIGHT - (CHART_HEIGHT - 2) * value / (top or 1.0) - 1
        points.append(f"{x:.1f},{y:.1f}")
    first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
    return {
        "line": " ".join(points),
        "area": f"{first},{CHART_HEIGHT} {' '.join(points)} {last},{CHART_HEIGHT}",
        "top": top,
        "span": span,
        "last": samples[-1][1],
        "width": CHART_WIDTH,
        "height": CHART_HEIGHT,
    }
