-- Lists are bound as one JSON text.

-- name: now
-- UTC as text.
strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now');

-- name: offset_column
-- A reserved word.
"offset";

-- name: among
-- In a list.
IN (SELECT value FROM json_each(%(ids)s));

-- name: ids
-- A list as a table.
(SELECT value AS listed_id FROM json_each(%(ids)s)) AS listed;

-- name: reasons
-- A list of pairs as a table. With LIMIT it is read once; without, for every row that it is joined to.
(SELECT json_extract(value, '$[0]') AS listed_id, json_extract(value, '$[1]') AS reason
 FROM json_each(%(json)s) LIMIT -1) AS listed;

-- name: hold
-- No one else writes while we have a transaction.
SELECT {offset_column} FROM {offset};

-- name: code_of
-- The code before the reason; the whole reason where the original wrote it.
CASE WHEN instr(gone_reason, ': ') > 0 THEN substr(gone_reason, 1, instr(gone_reason, ': ') - 1) ELSE gone_reason END
