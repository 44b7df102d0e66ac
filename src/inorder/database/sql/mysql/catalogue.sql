-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- None if there is no such table.
SELECT column_name FROM information_schema.columns
WHERE table_name = %(name)s AND table_schema = COALESCE(%(schema)s, DATABASE());

-- name: indexes
SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_name = %(name)s AND table_schema = COALESCE(%(schema)s, DATABASE());
