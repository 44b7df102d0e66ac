"""Dead letters as a pipeline leaves them, on every database."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.database.database import Database
from inorder.pipeline.stores.dead_letters import dead_letter_tables


@dataclass(frozen=True)
class Letter:
    """One row of `inorder_dead_letter`."""

    offset: int
    pipeline: str = "upsert:messages"
    topic: str = "orders"
    partition: int = 0
    generation: int = 0
    code: str = "not-json"
    detail: str = "unexpected character"
    key: bytes | None = b"1"
    value: bytes | None = b"{"


def bury(database: Database, *letters: Letter) -> None:
    """Writes letters as they are, tables made before."""
    database.install(dead_letter_tables(database.dialect))
    quote = "`" if database.dialect == "mysql" else '"'
    columns = ["pipeline", "topic", "partition", "offset", "generation", "code", "detail", "key", "value"]
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    values = ", ".join(f"%({name})s" for name in columns)
    with database.transaction() as transaction:
        for letter in letters:
            bound = {name: getattr(letter, name) for name in columns}
            transaction.execute(f"INSERT INTO inorder_dead_letter ({names}) VALUES ({values})", bound)


def actions(database: Database) -> list[tuple[str, int, str, str, str]]:
    """What was noted, without times and batches."""
    quote = "`" if database.dialect == "mysql" else '"'
    found = database.execute(
        f"SELECT topic, {quote}offset{quote}, code, action, reason FROM inorder_dead_letter_action ORDER BY 1, 2"
    )
    return [(topic, offset, code, action, reason) for topic, offset, code, action, reason in found.rows]
