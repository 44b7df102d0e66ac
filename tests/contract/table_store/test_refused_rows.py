"""What a database refuses costs its own records their place in the table, and nobody else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest

from inorder.database.schema_plan import table_names
from inorder.model.errors import ConfigurationError, MassRefusalError, RejectedError
from inorder.pipeline.brake import Brake
from inorder.pipeline.job import TableTarget, prepare_tables
from inorder.pipeline.mapping import FIELD_TYPES, TableMapping
from inorder.pipeline.slice import REFUSED, apply_slice
from inorder.pipeline.stores.ports import DeadLetter, FoldedRow, SliceCounters, WriteCounts
from inorder.pipeline.stores.table import SqlTableStores
from tests.contract.table_store.places import MAPPING, Sql
from tests.fakes.table_store import message, slice_of

# A check in each dialect's own words; SQLite can only add one when it makes the table.
_COLUMNS = "enabled BOOLEAN, data VARCHAR(8) {must}, version_generation INT NOT NULL DEFAULT 0, {rest}"
_REST = "version_offset BIGINT NOT NULL DEFAULT -1, updated_at VARCHAR(40) NOT NULL DEFAULT 'never'"


def made(sql: Sql, must: str = "CHECK (LENGTH(data) < 4)") -> None:
    """The user's own table."""
    columns = _COLUMNS.format(must=must, rest=_REST)
    sql.look(f"CREATE TABLE messages (id BIGINT NOT NULL PRIMARY KEY, {columns})")


def test_a_constraint_of_the_users_buries_the_record_and_names_itself(
    sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    made(sql)
    batch = slice_of((0, message(1, data="ok")), (7, message(2, data="long")), (8, b"?"), (9, message(3, data="ok")))
    outcome = apply_slice(sql.open(), MAPPING, batch)
    assert (outcome.applied, outcome.rejected, outcome.next_offset) == (2, 2, 10)
    assert {key: row[1] for key, row in sql.rows().items()} == {1: "ok", 3: "ok"}
    assert [letter[:2] for letter in sql.letters()] == [(7, REFUSED), (8, "not-json")]
    [(detail,)] = sql.look("SELECT detail FROM inorder_dead_letter WHERE code = %(code)s", code=REFUSED)
    assert "constraint" in detail.lower()
    assert ("long" in detail) is (sql.dialect == "postgres"), "its DETAIL has the row"
    [reason] = [vars(record)["reason"] for record in caplog.records if vars(record).get("offset") == 7]
    assert ("constraint" in reason.lower(), "long" in reason) == (True, False)
    assert sql.counted() == 4


def test_of_many_rows_exactly_the_refused_ones_are_buried(sql: Sql) -> None:
    made(sql)
    bad = {3, 40, 41, 77}
    records = [(key, message(key, data="long" if key in bad else "ok")) for key in range(100)]
    store = sql.open()
    assert apply_slice(store, MAPPING, slice_of(*records)).rejected == len(bad)
    assert set(sql.rows()) == set(range(100)) - bad
    assert {letter[0] for letter in sql.letters()} == bad
    assert apply_slice(store, MAPPING, slice_of(*records)).replayed == 100


@pytest.mark.full
@pytest.mark.parametrize("must", ["CHECK (LENGTH(data) < 4)", "NOT NULL"])
def test_a_flood_of_refusals_among_good_rows_buries_exactly_them(sql: Sql, must: str) -> None:
    made(sql, must)
    good, bad = {"data": "ok"}, {"data": "long"} if "CHECK" in must else {"enabled": True}
    records = [(key, message(key, **(bad if key % 5 == 2 else good))) for key in range(400)]
    outcome = apply_slice(sql.open(), MAPPING, slice_of(*records))
    guilty = set(range(2, 400, 5))
    assert (outcome.applied, outcome.rejected) == (400 - len(guilty), len(guilty))
    assert set(sql.rows()) == set(range(400)) - guilty
    assert {letter[0] for letter in sql.letters()} == guilty
    details = sql.look("SELECT DISTINCT detail FROM inorder_dead_letter")
    assert all("data" in detail.lower() or "constraint" in detail.lower() for (detail,) in details)


def test_rows_written_one_by_one_are_counted_as_those_written_together(sql: Sql) -> None:
    made(sql)
    store = sql.open()
    rows = [FoldedRow(1, (True, "a"), 5, 1), FoldedRow(2, (None, "b"), 6, 2)]
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        transaction.upsert([FoldedRow(1, (True, "a"), 0, 1), FoldedRow(3, (True, "new"), 9, 1)], 0)
        later = [*rows, FoldedRow(3, (True, "old"), 7, 1), FoldedRow(4, (None, "long"), 8, 1)]
        ended = transaction.upsert_each(later, 0)
        transaction.move_pointer(10, SliceCounters())
    if ended is None:
        assert set(sql.rows()) == {1, 3}, "nothing is written where there is no quick way"
        return
    assert ended[:3] == [WriteCounts(identical=1), WriteCounts(applied=2), WriteCounts(stale=1)]
    assert isinstance(ended[3], RejectedError)
    assert {key: row[1] for key, row in sql.rows().items()} == {1: "a", 2: "b", 3: "new"}


def test_of_one_key_the_records_before_and_after_a_refused_one_are_applied(sql: Sql) -> None:
    made(sql)
    batch = slice_of((0, message(1, data="one")), (1, message(1, enabled=True)), (2, message(1, data="long")))
    outcome = apply_slice(sql.open(), MAPPING, batch)
    assert (outcome.applied, outcome.rejected) == (2, 1)
    assert sql.rows() == {1: (True, "one", 1)}


def test_a_delete_that_is_refused_is_a_dead_letter_without_a_value(sql: Sql) -> None:
    if sql.dialect == "sqlite":
        sql.look("PRAGMA foreign_keys = ON")
    made(sql, "")
    store = sql.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(2, data="b"))))
    _refuse_deletes(sql)
    batch = slice_of((2, None), (3, None))
    outcome = apply_slice(store, MAPPING, replace(batch, keys=[b"1", b"2"]))
    assert (outcome.applied, outcome.rejected) == (1, 1)
    assert set(sql.rows()) == {1}
    assert [letter[:4] for letter in sql.letters()] == [(2, REFUSED, b"1", None)]
    assert sql.tombstones() == {b"2": 3}


def _refuse_deletes(sql: Sql) -> None:
    """Row 1 may not go: a trigger says so, each dialect in its own words."""
    when = "BEFORE DELETE ON messages FOR EACH ROW"
    if sql.dialect == "sqlite":
        sql.look(f"CREATE TRIGGER stays {when} WHEN OLD.id = 1 BEGIN SELECT RAISE(ABORT, 'constraint: stays'); END")
    elif sql.dialect == "mysql":
        signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'constraint: stays'"
        sql.look(f"CREATE TRIGGER stays {when} BEGIN IF OLD.id = 1 THEN {signal}; END IF; END")
    else:
        body = "BEGIN IF OLD.id = 1 THEN RAISE EXCEPTION 'constraint: stays'; END IF; RETURN OLD; END"
        sql.look(f"CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS '{body.replace(chr(39), chr(39) * 2)}'")
        sql.look(f"CREATE TRIGGER stays {when} EXECUTE FUNCTION stays()")


def test_an_update_that_lacks_what_a_new_row_must_have_changes_a_row_that_is_there(sql: Sql) -> None:
    made(sql, "NOT NULL")
    store = sql.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    batch = slice_of((1, message(1, enabled=True)), (2, message(2, enabled=True)), (3, message(3, data="c")))
    outcome = apply_slice(store, MAPPING, batch)
    assert (outcome.applied, outcome.rejected) == (2, 1)
    assert sql.rows() == {1: (True, "a", 1), 3: (None, "c", 3)}
    assert [letter[0] for letter in sql.letters()] == [2]


def test_two_keys_that_want_the_same_unique_value_do_not_touch_each_other(sql: Sql) -> None:
    made(sql, "UNIQUE")
    store = sql.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="x"))))
    outcome = apply_slice(store, MAPPING, slice_of((1, message(2, data="x")), (2, message(3, data="y"))))
    assert (outcome.applied, outcome.rejected) == (1, 1)
    assert sql.rows() == {1: (None, "x", 0), 3: (None, "y", 2)}


def test_a_row_that_waits_for_another_of_its_slice_passes_at_the_second_try(sql: Sql) -> None:
    made(sql, "UNIQUE")
    store = sql.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="x")), (1, message(2, data="y"))))
    # Key 1 wants what key 2 gives away, which is written after it.
    outcome = apply_slice(store, MAPPING, slice_of((2, message(2, data="z")), (3, message(1, data="y"))))
    assert (outcome.applied, outcome.rejected) == (2, 0)
    assert sql.rows() == {1: (None, "y", 3), 2: (None, "z", 2)}


def test_a_block_that_is_undone_leaves_the_transaction_as_it_was(sql: Sql) -> None:
    store = sql.open()
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        transaction.upsert([FoldedRow(1, (True, "kept"), 0, 1)], 0)
        with pytest.raises(ConfigurationError, match="on purpose"), transaction.savepoint():  # noqa: PT012 it is undone
            transaction.upsert([FoldedRow(2, (True, "undone"), 1, 1)], 0)
            raise ConfigurationError("on purpose")
        with transaction.savepoint():
            transaction.upsert([FoldedRow(3, (True, "kept"), 2, 1)], 0)
        transaction.move_pointer(3, SliceCounters())
    assert set(sql.rows()) == {1, 3}


def test_every_type_is_stored_as_it_was_meant(sql: Sql) -> None:
    mapping = TableMapping("types", "upsert", "things", fields=tuple((f"a_{kind}", kind) for kind in FIELD_TYPES))
    full = {
        "a_boolean": False,
        "a_integer": -(2**31),
        "a_bigint": 2**63 - 1,
        "a_double": 1.7976931348623157e308,
        "a_numeric": "-12345678901234567890.0123456789",
        "a_text": "\u00e4\\'\"\n{}",
        "a_timestamp": "2026-01-31T13:00:00.000001+01:00",
        "a_date": "2026-01-31",
        "a_uuid": "8C1ED3CF-1B1B-4B1B-8B1B-1B1B1B1B1B1B",
        "a_json": {"b": [1, None, "\\"], "a": "'"},
    }
    store = sql.open(mapping)
    documents = [{"id": 1, **full}, {"id": 2, "a_double": 3}]
    batch = slice_of(*((offset, orjson.dumps(document)) for offset, document in enumerate(documents)))
    assert apply_slice(store, mapping, batch).applied == 2
    stored = dict(zip(full, sql.rows(mapping)[1], strict=False))
    assert {name: _read(name, value) for name, value in stored.items()} == {
        **full,
        "a_numeric": Decimal("-12345678901234567890.0123456789"),
        "a_timestamp": datetime.fromisoformat("2026-01-31T12:00:00.000001"),
        "a_date": date(2026, 1, 31),
        "a_uuid": UUID("8c1ed3cf-1b1b-4b1b-8b1b-1b1b1b1b1b1b"),
    }
    assert sql.rows(mapping)[2] == (None, None, None, 3.0, *[None] * 6, 1)
    again = slice_of(*((offset + 2, orjson.dumps(document)) for offset, document in enumerate(documents)))
    assert apply_slice(store, mapping, again).identical == 2


def _read(name: str, value: Any) -> object:
    """As Python has it, whatever the driver gives."""
    readers: dict[str, Any] = {
        "a_numeric": lambda found: Decimal(found),
        "a_timestamp": lambda found: datetime.fromisoformat(str(found)).replace(tzinfo=None),
        "a_date": lambda found: date.fromisoformat(str(found)),
        "a_uuid": lambda found: UUID(str(found)),
        "a_json": lambda found: orjson.loads(found) if isinstance(found, str) else found,
    }
    return readers[name](value) if name in readers else value


def test_many_dead_letters_are_buried_once_and_a_replay_buries_no_more(sql: Sql) -> None:
    store = sql.open()
    batch = slice_of(*((offset, b"garbage %d" % offset) for offset in range(2500)))
    assert apply_slice(store, MAPPING, batch).rejected == 2500
    sql.lose_pointers()
    assert apply_slice(store, MAPPING, batch).rejected == 2500
    assert len(sql.letters()) == 2500
    assert sql.letters()[7][:4] == (7, "not-json", None, b"garbage 7")


def test_most_rows_refused_with_one_code_make_the_partition_wait_until_the_table_accepts_them(sql: Sql) -> None:
    made(sql)
    store, brake = sql.open(), Brake(0.5)
    bad = [(key, message(key, data="long")) for key in range(20)]
    with pytest.raises(MassRefusalError, match="waits at offset 0: 20 of 20 records are refused with code ") as found:
        apply_slice(store, MAPPING, slice_of(*bad), 0, brake)
    assert found.value.is_certain
    assert (sql.rows(), sql.letters(), sql.counted()) == ({}, [], 0)
    sql.look("DROP TABLE messages")
    made(sql, must="")
    assert apply_slice(store, MAPPING, slice_of(*bad), 0, brake).applied == 20


def test_a_table_that_cannot_be_written_makes_the_partition_wait_until_it_can(sql: Sql) -> None:
    made(sql, must="")
    store, brake = sql.open(), Brake(0.5)
    assert apply_slice(store, MAPPING, slice_of((0, message(1, data="ok"))), 0, brake).applied == 1
    sql.look("ALTER TABLE messages RENAME TO elsewhere")
    for later in (slice_of((1, message(1, data="new"))), replace(slice_of((1, None)), keys=[b"1"])):
        with pytest.raises(MassRefusalError, match="waits at offset 1: table 'messages' cannot be written") as found:
            apply_slice(store, MAPPING, later, 1, brake)
        assert (found.value.is_certain, found.value.place) == (True, ("upsert", 0))
    assert (sql.letters(), sql.counted()) == ([], 1)
    sql.look("ALTER TABLE elsewhere RENAME TO messages")
    assert apply_slice(store, MAPPING, slice_of((1, message(1, data="new"))), 1, brake).applied == 1


def test_no_partition_waits_for_a_table_of_inorder(sql: Sql) -> None:
    made(sql, must="")
    store = sql.open()
    sql.look("DROP TABLE inorder_dead_letter")
    with pytest.raises(ConfigurationError):
        apply_slice(store, MAPPING, slice_of((0, message(1, data="ok")), (1, b"?")), 0, Brake(0.5))


def test_a_column_that_becomes_not_null_is_noticed_by_an_open_store(sql: Sql) -> None:
    made(sql, must="")
    store = sql.open()
    assert apply_slice(store, MAPPING, slice_of((0, message(1, data="ok")))).applied == 1
    sql.look("DROP TABLE messages")
    made(sql, must="NOT NULL")
    sql.look("INSERT INTO messages (id, enabled, data) VALUES (1, FALSE, 'ok')")
    outcome = apply_slice(store, MAPPING, slice_of((1, message(1, enabled=True)), (2, message(2, enabled=True))))
    assert (outcome.applied, outcome.rejected) == (1, 1)
    assert sql.rows()[1][1] == "ok"
    assert [letter[0] for letter in sql.letters()] == [2]


_ANY = replace(MAPPING, fields=(("enabled", "boolean"), ("data", "text"), ("tree", "json"), ("at", "timestamp")))
_MICROS = (2**63 - 1, 253_402_300_800_000_000, 253_402_300_799_999_999, 0, -62_135_596_800_000_000, -(2**63))
"""Times of records at both ends of what Kafka, and of what a date can hold."""


def test_records_that_no_code_expects_are_dead_letters_and_the_rest_is_applied(sql: Sql) -> None:
    poison = [b'{"id":1,"tree":%s%s}' % (b"[" * levels, b"]" * levels) for levels in (300, 940, 1_000, 1_020, 2_000)]
    poison += [
        b'{"id":1,"data":%s1%s}' % (b'{"a":' * 1_000, b"}" * 1_000),
        b'{"id":1,"at":"0001-01-01T00:00:00+14:00"}',
    ]
    poison += [b"\xff", b'{"id":1,"data":"\\ud800"}', b'{"id":1,"tree":{"\\u0000":1}}', b'{"id":1e400}']
    good = [message(key, data="ok") for key in range(10, 211)]
    batch = slice_of(*enumerate([*poison, *good]))
    times = [_MICROS[index % len(_MICROS)] for index in range(len(batch))]
    outcome = apply_slice(sql.open(_ANY), _ANY, replace(batch, timestamps=times))
    assert (outcome.applied, outcome.rejected) == (len(good), len(poison))
    assert [letter[0] for letter in sql.letters()] == list(range(len(poison)))
    assert [letter[3] for letter in sql.letters()] == poison


def test_dead_letters_that_are_large_together_are_buried_too(sql: Sql) -> None:
    store = sql.open()
    letters = [DeadLetter(offset, "too-large", "it is", None, b"\0'\\" * 1_000_000, None) for offset in range(8)]
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        transaction.bury(letters)
        transaction.move_pointer(8, SliceCounters(rejected=8))
    assert [len(letter[3] or b"") for letter in sql.letters()] == [3_000_000] * 8


def test_install_twice_is_fine_and_a_table_that_cannot_take_the_rows_is_refused(sql: Sql) -> None:
    sql.open().install()
    wider = replace(MAPPING, fields=(*MAPPING.fields, ("price", "numeric")))
    with closing(SqlTableStores(sql.url, wider)()) as store, pytest.raises(ConfigurationError, match="lacks: price"):
        store.install()
    by_data = replace(MAPPING, key="data", key_type="text", fields=(("enabled", "boolean"),))
    with closing(SqlTableStores(sql.url, by_data)()) as store, pytest.raises(ConfigurationError, match="is not unique"):
        store.install()


def test_rows_larger_than_a_statement_can_carry_are_written_in_portions(sql: Sql) -> None:
    mapping = replace(MAPPING, max_value_bytes=5_000_000)
    store = sql.open(mapping)
    batch = slice_of(*((key, message(key, data="\u00e4'" * 500_000)) for key in range(9)))
    assert apply_slice(store, mapping, batch).applied == 9
    assert {len(str(row[1])) for row in sql.rows().values()} == {1_000_000}


# Before a job starts.


def target_of(sql: Sql, mapping: TableMapping) -> TableTarget:
    return TableTarget(mapping, SqlTableStores(sql.url, mapping))


def test_a_table_that_does_not_exist_is_refused_with_the_name_that_was_meant_and_is_not_created(sql: Sql) -> None:
    sql.open()
    before = table_names(sql.looking)
    with pytest.raises(ConfigurationError, match="Table 'mesages' does not exist; did you mean 'messages'") as caught:
        prepare_tables([target_of(sql, replace(MAPPING, table="mesages"))], sql.looking)
    assert "inorder schema install --layout table" in caught.value.hint
    assert table_names(sql.looking) == before


def test_a_table_is_created_where_that_is_allowed(sql: Sql) -> None:
    prepare_tables([target_of(sql, MAPPING)], sql.looking, creates=True)
    assert {"messages", "inorder_pointer", "inorder_dead_letter", "inorder_tombstone"} <= set(table_names(sql.looking))
    prepare_tables([target_of(sql, MAPPING)], sql.looking)


def test_no_ddl_runs_where_nothing_is_missing_and_tables_of_inorder_are_created(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql.open()
    sql.look("DROP TABLE inorder_tombstone")
    prepare_tables([target_of(sql, MAPPING)], sql.looking)
    assert "inorder_tombstone" in table_names(sql.looking)

    def refuse(_statements: object) -> None:
        raise ConfigurationError("permission denied for schema public.")

    monkeypatch.setattr(sql.looking, "install", refuse)
    prepare_tables([target_of(sql, MAPPING)], sql.looking)
    sql.look("DROP TABLE inorder_tombstone")
    with pytest.raises(
        ConfigurationError, match="lacks table inorder_tombstone, and this user may not add it"
    ) as caught:
        prepare_tables([target_of(sql, MAPPING)], sql.looking)
    assert "inorder schema install --layout table" in caught.value.hint
