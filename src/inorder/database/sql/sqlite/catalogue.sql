-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- None if there is no such table.
SELECT name FROM pragma_table_info(%(name)s);

-- name: indexes
SELECT name FROM pragma_index_list(%(name)s);
