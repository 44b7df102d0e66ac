-- What the doctor asks of an SQLite file; nothing here changes anything.

-- name: version
-- The library's.
SELECT sqlite_version();

-- name: table
-- How a table was made; no row where there is none.
SELECT sql FROM sqlite_master WHERE type = 'table' AND name = %(table)s;

-- name: columns
-- The columns of a table, and which of them is the primary key.
SELECT name, pk FROM pragma_table_info(%(table)s);
