"""The header of an action is byte for byte that of the original, and what others write is read."""

from __future__ import annotations

import pytest

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.codec import from_header, to_header
from inorder.model.journal import MAX_SEQ_NR, PayloadType, SeqRange

JSON, BINARY = PayloadType.JSON, PayloadType.BINARY

GOLDEN = [
    (
        Append(SeqRange(1, 5), JSON, "h", "0.0.1", {"key": "value"}),
        (
            '{"append":{"range":{"from":1,"to":5},"origin":"h","version":"0.0.1","payloadType":"json",'
            '"metadata":{"data":{"key":"value"}}}}'
        ),
    ),
    (
        Append(SeqRange(1, MAX_SEQ_NR), BINARY),
        '{"append":{"range":{"from":1,"to":9223372036854775807},"payloadType":"binary","metadata":{}}}',
    ),
    (Delete(3, "h", "0.0.1"), '{"delete":{"to":3,"origin":"h","version":"0.0.1"}}'),
    (Delete(3), '{"delete":{"to":3}}'),
    (Purge("h"), '{"purge":{"origin":"h"}}'),
    (Purge(), '{"purge":{}}'),
    (Mark("uuid", "h"), '{"mark":{"id":"uuid","origin":"h"}}'),
    (Mark("uuid", version="0.0.1"), '{"mark":{"id":"uuid","version":"0.0.1"}}'),
]


@pytest.mark.parametrize(("action", "header"), GOLDEN)
def test_an_action_is_written_like_the_original(action: Action, header: str) -> None:
    assert to_header(action).decode() == header


@pytest.mark.parametrize(("action", "header"), GOLDEN)
def test_what_the_original_writes_is_read(action: Action, header: str) -> None:
    assert from_header(header.encode()) == action


@pytest.mark.parametrize("metadata", ["", ',"metadata":{}', ',"metadata":null', ',"metadata":"old"'])
def test_metadata_of_old_versions_is_none(metadata: str) -> None:
    header = f'{{"append":{{"range":{{"from":1,"to":1}},"payloadType":"json"{metadata}}}}}'
    assert from_header(header.encode()) == Append(SeqRange(1, 1), JSON)


@pytest.mark.parametrize("header", ['{"new":{}}', "{}", '{"new":{},"other":1}'])
def test_an_action_of_a_later_version_is_none(header: str) -> None:
    assert from_header(header.encode()) is None


def test_of_several_roots_the_first_known_one_counts() -> None:
    assert from_header(b'{"purge":{},"delete":{"to":1},"new":{}}') == Delete(1)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"append":1}', "append is not a JSON object"),
        ('{"append":{"payloadType":"json"}}', "range is not a JSON object"),
        ('{"append":{"range":{"from":0,"to":1},"payloadType":"json"}}', "from: 0 is not a sequence number"),
        ('{"append":{"range":{"from":2,"to":1},"payloadType":"json"}}', "range 2 to 1 ends before it begins"),
        ('{"append":{"range":{"from":1,"to":1},"payloadType":"text"}}', "payloadType 'text' is neither"),
        ('{"append":{"range":{"from":1,"to":1}}}', "payloadType None is neither"),
        ('{"delete":{}}', "to: None is not a sequence number"),
        ('{"mark":{}}', "id is not text"),
        ('{"purge":{"origin":1}}', "origin is not text"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(header: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_header(header.encode())


def test_bytes_that_are_no_text_are_damaged() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        from_header(b"\xff")
