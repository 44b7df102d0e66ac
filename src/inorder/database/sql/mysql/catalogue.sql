-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- None if there is no such table.
SELECT column_name FROM information_schema.columns
WHERE table_name = %(name)s AND table_schema = COALESCE(%(schema)s, DATABASE());

-- name: tables
-- All that this user may see, as a setting would name them: without a schema in the current one.
SELECT IF(table_schema = DATABASE(), table_name, CONCAT(table_schema, '.', table_name)) FROM information_schema.tables
WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys');

-- name: indexes
SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_name = %(name)s AND table_schema = COALESCE(%(schema)s, DATABASE());
