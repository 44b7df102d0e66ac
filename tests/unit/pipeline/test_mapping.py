"""A mapping that cannot work is refused when it is made, with the value and what is known."""

from __future__ import annotations

import pytest

from inorder.model.errors import ConfigurationError
from inorder.pipeline.mapping import TableMapping


def test_the_default_mapping_is_that_of_the_messages_table() -> None:
    mapping = TableMapping("demo", "upsert", "messages")
    assert (mapping.key, mapping.key_type, mapping.mode) == ("id", "bigint", "upsert")
    assert mapping.columns == ("enabled", "data")


def test_an_unknown_type_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        TableMapping("demo", "upsert", "messages", fields=(("price", "money"),))
    assert "'money'" in caught.value.message
    assert "'price'" in caught.value.message
    assert "boolean, integer, bigint, double, numeric, text" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "delete"), ("mode", ""), ("deletes", "keep"), ("nulls", "keep"), ("key_type", "json")]
)
def test_a_word_that_is_not_known_is_refused_naming_the_known_ones(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=repr(value)) as caught:
        TableMapping("demo", "upsert", "messages", **{name: value})  # type: ignore[arg-type]  # all are texts
    assert "Use one of: " in caught.value.hint


@pytest.mark.parametrize(
    ("key", "kinds", "columns"),
    [
        ("id", "text", (("id", "text"),)),
        (("a", "b"), "text", (("a", "text"), ("b", "text"))),
        (("a", "b"), ("uuid", "integer"), (("a", "uuid"), ("b", "integer"))),
        (("a",), ("bigint",), (("a", "bigint"),)),
    ],
)
def test_a_key_has_one_column_or_several(
    key: str | tuple[str, ...], kinds: str | tuple[str, ...], columns: tuple[tuple[str, str], ...]
) -> None:
    mapping = TableMapping("demo", "upsert", "messages", key=key, key_type=kinds)
    assert mapping.key_columns == columns
    assert mapping.key_names == tuple(name for name, _ in columns)


@pytest.mark.parametrize(
    ("key", "kinds"), [(("a", "b"), ("text",)), ((), "text"), ("id", ("text", "text")), (("a",), ())]
)
def test_columns_and_types_of_a_key_must_fit(key: str | tuple[str, ...], kinds: str | tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="do not match"):
        TableMapping("demo", "upsert", "messages", key=key, key_type=kinds)


@pytest.mark.parametrize(
    ("mode", "deletes", "can_delete"),
    [
        ("upsert", "tombstone", True),
        ("update", "tombstone", True),
        ("insert", "tombstone", False),
        ("upsert", "reject", False),
    ],
)
def test_inserts_never_take_a_row_away(mode: str, deletes: str, can_delete: bool) -> None:
    assert TableMapping("demo", "upsert", "messages", mode=mode, deletes=deletes).can_delete is can_delete


def test_a_key_cannot_be_a_boolean() -> None:
    with pytest.raises(ConfigurationError, match="boolean"):
        TableMapping("demo", "upsert", "messages", key_type="boolean")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((), "no fields"),
        ((("id", "text"),), "'id' is named twice"),
        ((("updated_at", "timestamp"),), "'updated_at' is a column that inorder writes"),
        ((("a", "text"), ("a", "text")), "'a' is named twice"),
        ((("version_offset", "bigint"),), "'version_offset' is a column that inorder writes"),
        ((('a" text; drop', "text"),), "is not a column name"),
        ((("a{b}", "text"),), "is not a column name"),
    ],
)
def test_columns_that_cannot_work_are_refused(fields: tuple[tuple[str, str], ...], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        TableMapping("demo", "upsert", "messages", fields=fields)


@pytest.mark.parametrize("name", ["max_value_bytes", "max_attempts"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 0"):
        TableMapping("demo", "upsert", "messages", **{name: 0})  # type: ignore[arg-type]  # both are numbers
