-- name: now
-- UTC without a zone, as the tables keep times.
(clock_timestamp() AT TIME ZONE 'UTC');

-- name: offset_column
-- A reserved word.
"offset";

-- name: among
-- In a list.
= ANY(CAST(%(ids)s AS bigint[]));

-- name: ids
-- A list as a table.
unnest(CAST(%(ids)s AS bigint[])) AS listed (listed_id);

-- name: reasons
-- Two lists as a table.
unnest(CAST(%(ids)s AS bigint[]), CAST(%(reasons)s AS text[])) AS listed (listed_id, reason);

-- name: hold
-- Keeps the offset where it is until the transaction ends.
SELECT {offset_column} FROM {offset} FOR UPDATE;

-- name: parked
-- Keys of what was exceeded; the original left no reasons. Looked up by id one after the other: the planner knows nothing of the
-- exceeded events, takes them for many, and would rather read all the others.
SELECT {topic}, {key}, {id}
FROM (SELECT DISTINCT id AS gone_id FROM {exceeded} WHERE reason IS NOT NULL) AS gone
CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {id} = gone_id OFFSET 0) AS event
WHERE {key} IS NOT NULL
ORDER BY {id};

-- name: code_of
-- The code before the reason; the whole reason where the original wrote it.
split_part(gone_reason, ': ', 1)
