"""The reader in docs/publishing.md drops a repeat, and nothing else."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tests.unit.docs.markdown import blocks, page


def test_the_example_of_a_reader_drops_repeats_only() -> None:
    (source,) = [block for block in blocks(page("docs/publishing.md"), "python") if "def is_new" in block]
    namespace: dict[str, Any] = {"text": sa.text}
    exec(compile(source, "publishing.md", "exec"), namespace)  # noqa: S102 - our own page
    is_new = namespace["is_new"]
    create = str(is_new.__doc__).partition("CREATE")
    with sa.create_engine("sqlite://").begin() as connection:
        connection.execute(sa.text(create[1] + create[2]))
        records = [
            ([("id", b"1")], b"k", b"v"),
            ([("id", b"2")], b"k", b"v"),
            ([("id", b"1")], b"k", b"v"),  # a repeat
            ([("id", b"2")], b"k", b"w"),  # an id that was assigned again
            ([("trace", b"x"), ("id", b"3")], None, None),
        ]
        assert [is_new(connection, *record) for record in records] == [True, True, False, True, True]
