"""What the pages refer to exists: files, commands, make targets, settings, messages, dead-letter codes, words."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from inorder.cli.main import app
from inorder.settings.root import Settings
from inorder.settings.sources import known_keys
from tests.unit.docs.markdown import ROOT, WRITTEN, blocks, links, page, prose, rows, spans

OPERATIONS = "docs/operations.md"


def commands(command: Any, name: str) -> set[str]:
    children = getattr(command, "commands", {})
    return {name}.union(*(commands(inner, f"{name} {child}") for child, inner in children.items()))


def source() -> str:
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "scripts" / "setup"]
    return "\n".join(path.read_text("utf-8") for path in files)


@pytest.mark.parametrize("name", WRITTEN)
def test_links_lead_to_files(name: str) -> None:
    targets = [target.partition("#")[0] for _, target in links(page(name)) if not target.startswith("https://")]
    assert [target for target in targets if not ((ROOT / name).parent / target).exists()] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_files_that_are_named_exist(name: str) -> None:
    named = [
        span.partition("::")[0]
        for span in spans(page(name))
        if re.match(r"(src|tests|docs|scripts|examples|deploy)/", span)
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_commands_that_are_named_exist(name: str) -> None:
    known_commands = commands(typer.main.get_command(app), "inorder")
    lines = spans(page(name)) + [line for block in blocks(page(name), "sh") for line in block.splitlines()]
    for line in lines:
        if found := re.match(r"(?:\.venv/bin/)?(inorder(?: [a-z-]+)+)", line):
            words = found[1].split()
            # Arguments follow a command, so any leading part of the words may be the command.
            assert any(" ".join(words[:length]) in known_commands for length in (2, 3)), line


@pytest.mark.parametrize("name", WRITTEN)
def test_make_targets_that_are_named_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    text = "\n".join([*spans(page(name)), *blocks(page(name), "sh")])
    named = {word for words in re.findall(r"^make ((?:[a-z]+ ?)+)", text, re.MULTILINE) for word in words.split()}
    assert named <= targets


def logged_events() -> set[str]:
    """The names of log events, from the beginning of the messages in the source."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    return set(re.findall(r'"((?:relay|topics|pipeline|journal|leadership|publisher)\.[a-z_]+)[": ]', source))


@pytest.mark.parametrize("name", WRITTEN)
def test_settings_that_are_named_exist(name: str) -> None:
    keys = {".".join(path) for path in known_keys(Settings)}
    sections = "|".join(sorted({key.partition(".")[0] for key in keys if "." in key}))
    named = {found[0] for span in spans(page(name)) if (found := re.match(rf"(?:{sections})\.[a-z_.]+\b", span))}
    assert named - logged_events() <= keys


@pytest.mark.parametrize("name", WRITTEN)
def test_no_page_names_a_machine_or_a_registry(name: str) -> None:
    assert re.findall(r"/(?:home|root|work|tmp|Users)/|pypi\.|maven\.|repo1\.|docker\.io", page(name)) == []


def test_messages_that_operations_quotes_are_in_the_code() -> None:
    text = source()
    quoted = [span for row in rows(page(OPERATIONS)) if len(row) == 3 for span in re.findall(r"`([^`]+)`", row[0])]
    quoted = [span for span in quoted if not re.fullmatch(r"\d\w{4}|[a-z.]+ = .*", span)]
    assert len(quoted) > 40
    assert [span for span in quoted if span not in text] == []


def test_every_dead_letter_code_is_explained() -> None:
    code = r"[a-z]+(?:-[a-z]+)+"
    deciding = ("checks", "mapping", "slice", "decoding")
    modules = [page(f"src/inorder/pipeline/{name}.py") for name in deciding]
    codes = {found for module in modules for found in re.findall(rf'"({code})"', module)}
    explained = [row[0].strip("`") for row in rows(page("docs/pipeline.md")) if len(row) == 2]
    assert sorted(word for word in explained if re.fullmatch(code, word)) == sorted(codes)
    assert len(codes) == 14


def test_the_glossary_is_in_order_and_explains_each_word_once() -> None:
    words = [row[0] for row in rows(page("docs/glossary.md"))]
    assert words == sorted(set(words))
    assert all(len(row) == 2 and row[1].endswith(".") for row in rows(page("docs/glossary.md")))


def test_the_words_of_the_glossary_are_those_of_the_code() -> None:
    # Classes are written together, so UnknownOutcomeError is where an unknown outcome is.
    text = re.sub(r"[\s_]+", "", source().lower())
    words = [row[0] for row in rows(page("docs/glossary.md"))]
    assert [word for word in words if word.replace(" ", "") not in text] == []


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"[\w/-]+\.md", page("mkdocs.yml"))) == pages


def test_the_readme_stays_short() -> None:
    assert len(page("README.md").splitlines()) <= 130
    assert "TODO" not in prose(page("README.md"))
