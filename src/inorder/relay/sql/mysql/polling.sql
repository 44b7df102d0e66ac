-- A list of ids is written out where rows are looked for: that is quick with an index and without. Where it is read as a
-- table it is one JSON text.

-- name: now
-- UTC, whatever the session's time zone.
UTC_TIMESTAMP(6);

-- name: offset_column
-- A reserved word.
`offset`;

-- name: among
-- In a list, which the driver writes with its brackets.
IN %(ids)s;

-- name: ids
-- A list as a table.
JSON_TABLE(%(json)s, '$[*]' COLUMNS (listed_id BIGINT PATH '$')) AS listed;

-- name: reasons
-- A list of pairs as a table.
JSON_TABLE(%(json)s, '$[*]' COLUMNS (listed_id BIGINT PATH '$[0]', reason LONGTEXT PATH '$[1]')) AS listed;

-- name: hold
-- Keeps the offset where it is until the transaction ends.
SELECT {offset_column} FROM {offset} FOR UPDATE;

-- name: code_of
-- The code before the reason; the whole reason where the original wrote it.
SUBSTRING_INDEX(gone_reason, ': ', 1)
