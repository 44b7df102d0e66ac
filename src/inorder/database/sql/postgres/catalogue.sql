-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- Of a table as the search path of this user sees it; none if there is no such table.
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped;

-- name: indexes
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%(table)s);
