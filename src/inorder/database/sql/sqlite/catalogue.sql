-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- None if there is no such table.
SELECT name FROM pragma_table_info(%(name)s);

-- name: tables
SELECT name FROM sqlite_master WHERE type IN ('table', 'view');

-- name: indexes
SELECT name FROM pragma_index_list(%(name)s);
