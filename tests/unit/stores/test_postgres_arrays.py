"""Lists as PostgreSQL writes arrays; that the server reads them back is shown where there is one."""

from __future__ import annotations

import pytest

from inorder.database.postgres import binaries, numbers, texts


@pytest.mark.parametrize(
    ("column", "literal"),
    [
        ([], "{}"),
        ([1, -2, None], "{1, -2, NULL}"),
        ((True, None, False), "{True, NULL, False}"),
        ([0.1, 1e300, None], "{0.1, 1e+300, NULL}"),
    ],
)
def test_numbers(column: list[int | None], literal: str) -> None:
    assert numbers(column) == literal


@pytest.mark.parametrize(
    ("column", "literal"),
    [
        ([], "{}"),
        (["a", None, "b"], '{"a",NULL,"b"}'),
        ([None, None], "{NULL,NULL}"),
        (["", "NULL", "{a,b}"], '{"","NULL","{a,b}"}'),
        (['"', "\\", '\\"', ","], '{"\\"","\\\\","\\\\\\"",","}'),
        ((",", None, ",x"), '{",",NULL,",x"}'),
    ],
)
def test_texts(column: list[str | None], literal: str) -> None:
    assert texts(column) == literal


def test_binaries() -> None:
    assert binaries([b"\x00'\"", None, b""]) == r'{"\\x002722",NULL,"\\x"}'
