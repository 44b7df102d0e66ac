"""Columns are checked on the driver, by name and type."""

from __future__ import annotations

import pytest

from inorder.engines.formats import BYTES, WHOLE_NUMBER, Column, check_columns
from inorder.journal.formats import JournalFormat
from inorder.model.errors import ConfigurationError
from inorder.pipeline.formats import KafkaFormat, TableFormat

KNOWN = (Column("id", ("string",)), Column("seq_nr", WHOLE_NUMBER), Column("tags", ("array<string>",), is_needed=False))
SPARKS_KAFKA_SOURCE = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def test_what_is_needed_is_enough_in_any_order() -> None:
    check_columns("sink", {"seq_nr": "int", "id": "string"}, KNOWN)
    check_columns("sink", {"tags": "array<string>", "seq_nr": "bigint", "id": "string"}, KNOWN)


def test_a_missing_column_is_named_with_the_one_that_was_probably_meant() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_columns("sink", {"id": "string", "seqnr": "bigint"}, KNOWN)
    assert refused.value.message == (
        "The format 'sink' needs a column 'seq_nr', which the data lacks; did you mean 'seqnr'?"
    )
    assert refused.value.hint == "Select some of: id, seq_nr, tags."


def test_an_unknown_column_may_be_an_optional_one_misspelt() -> None:
    with pytest.raises(ConfigurationError, match="knows no column 'tag'; did you mean 'tags'"):
        check_columns("sink", {"id": "string", "seq_nr": "bigint", "tag": "array<string>"}, KNOWN)


def test_a_column_of_another_type_is_refused_with_both() -> None:
    with pytest.raises(ConfigurationError, match="'id' is bigint, but the format 'sink' takes string") as refused:
        check_columns("sink", {"id": "bigint", "seq_nr": "bigint"}, KNOWN)
    assert refused.value.hint == "Cast it to string."


def test_the_table_takes_what_sparks_kafka_source_gives() -> None:
    check_columns("inorder.table", SPARKS_KAFKA_SOURCE, TableFormat.known_columns)
    check_columns("inorder.table", SPARKS_KAFKA_SOURCE | {"value": "string"}, TableFormat.known_columns)


@pytest.mark.parametrize("name", ["topic", "partition", "offset", "value"])
def test_the_table_needs_the_coordinates(name: str) -> None:
    found = {column: kind for column, kind in SPARKS_KAFKA_SOURCE.items() if column != name}
    with pytest.raises(ConfigurationError, match=f"needs a column '{name}'"):
        check_columns("inorder.table", found, TableFormat.known_columns)


def test_kafka_needs_a_value_and_journals_an_id_and_a_number() -> None:
    check_columns("inorder.kafka", {"value": "string"}, KafkaFormat.known_columns)
    check_columns("inorder.journal", {"id": "string", "seq_nr": "int", "payload": "void"}, JournalFormat.known_columns)
    assert all(set(BYTES) <= set(column.types) for column in JournalFormat.known_columns if column.name == "payload")
