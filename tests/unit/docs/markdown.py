"""What our pages hold, as values: links, code blocks, code spans and rows of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
GENERATED = ("docs/cli.md", "docs/errors.md", "docs/logs.md", "docs/settings.md")
WRITTEN = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if path.relative_to(ROOT).as_posix() not in GENERATED
)

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


def page(name: str) -> str:
    """The text of a page, named from the root of the project."""
    return (ROOT / name).read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The bodies of code blocks in a language."""
    return [found["body"] for found in _BLOCK.finditer(text) if found["language"] == language]


def prose(text: str) -> str:
    """The page without its code blocks."""
    return _BLOCK.sub("", text)


def links(text: str) -> list[tuple[str, str]]:
    """Text and target of every link outside code blocks."""
    return [(found["text"], found["target"]) for found in _LINK.finditer(prose(text))]


def spans(text: str) -> list[str]:
    """Every code span outside code blocks."""
    return _SPAN.findall(prose(text))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row, without headings and rules."""
    lines = prose(text).splitlines()
    for number, line in enumerate(lines):
        is_heading = number + 1 < len(lines) and lines[number + 1].startswith("|---")
        if line.startswith("| ") and not is_heading:
            yield [cell.strip() for cell in line.strip("|").split(" | ")]
