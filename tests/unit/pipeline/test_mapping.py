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
    assert "boolean, integer, bigint, double, text" in caught.value.hint


@pytest.mark.parametrize("mode", ["insert", "update", "delete"])
def test_a_mode_that_does_not_exist_yet_is_refused(mode: str) -> None:
    with pytest.raises(ConfigurationError, match=mode):
        TableMapping("demo", "upsert", "messages", mode=mode)


def test_a_key_cannot_be_a_boolean() -> None:
    with pytest.raises(ConfigurationError, match="integer, bigint, text"):
        TableMapping("demo", "upsert", "messages", key_type="boolean")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((), "no fields"),
        ((("id", "text"),), "'id' is named twice"),
        ((("a", "text"), ("a", "text")), "'a' is named twice"),
        ((("version_offset", "bigint"),), "'version_offset' is a column that inorder keeps"),
        ((('a" text; drop', "text"),), "is not a column name"),
        ((("a{b}", "text"),), "is not a column name"),
    ],
)
def test_columns_that_cannot_work_are_refused(fields: tuple[tuple[str, str], ...], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        TableMapping("demo", "upsert", "messages", fields=fields)


def test_a_size_limit_below_one_byte_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_value_bytes is 0"):
        TableMapping("demo", "upsert", "messages", max_value_bytes=0)
