"""A document is held against the schema of its topic, and the refusal names field, value and rule."""

from __future__ import annotations

import sys
import time

import orjson
import pytest

from inorder.model.errors import ConfigurationError
from inorder.pipeline.decoding import schema_check

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number", "minimum": 0},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "state": {"enum": ["open", "paid"]},
    },
}


def text(schema: object) -> str:
    return orjson.dumps(schema).decode()


@pytest.mark.parametrize("document", [{"id": 1}, {"id": 1, "price": 0.5, "lines": [{"sku": "a"}], "more": None}])
def test_a_valid_document_passes(document: object) -> None:
    assert schema_check(text(ORDER))(document) is None


@pytest.mark.parametrize(
    ("document", "flaw"),
    [
        ({"id": 1, "price": -2}, "The field 'price' breaks the rule 'minimum'"),
        ({"id": "x"}, "The field 'id' breaks the rule 'type' of the topic's schema: \"x\" is not of type \"integer\"."),
        ({"id": 1, "lines": [{}, {"sku": 3}]}, "The field 'lines[1].sku' breaks the rule 'type'"),
        ({"id": 1, "state": "lost"}, "The field 'state' breaks the rule 'enum'"),
        ({"price": 1}, "The value breaks the rule 'required' of the topic's schema: \"id\" is a required property."),
        ([], "The value breaks the rule 'type'"),
    ],
)
def test_a_flaw_names_the_field_the_value_and_the_rule(document: object, flaw: str) -> None:
    found = schema_check(text(ORDER))(document)
    assert found is not None
    assert found.startswith(flaw)


def test_a_long_value_is_shortened() -> None:
    found = schema_check(text({"type": "object", "properties": {"a": {"type": "integer"}}}))({"a": "x" * 5000})
    assert found is not None
    assert len(found) < 300
    assert found.endswith("….")


@pytest.mark.parametrize(
    "broken", ["{", "3", '{"type": "nonsense"}', '{"pattern": "("}', '{"$ref": "https://example.com/other.json"}']
)
def test_what_is_no_schema_is_refused_when_it_is_read(broken: str) -> None:
    with pytest.raises(ConfigurationError, match="json_schema of a topic is not a valid JSON Schema"):
        schema_check(broken)


def test_equal_schemas_share_one_validator() -> None:
    assert schema_check(text(ORDER)) is schema_check(text(ORDER))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigurationError, match="jsonschema-rs") as caught:
        schema_check('{"title": "never compiled before"}')
    assert "pip install 'inorder[schema]'" in caught.value.hint


def test_a_check_is_cheap() -> None:
    check, document = schema_check(text(ORDER)), {"id": 1, "price": 2.5, "lines": [{"sku": "a"}], "state": "open"}
    started = time.perf_counter()
    for _ in range(2_000):
        check(document)
    # Half a microsecond each on a calm machine; the bound is for a busy one.
    assert time.perf_counter() - started < 0.2
