-- What a database has, for a plan of its schema; nothing here changes anything.

-- name: columns
-- Of a table as the search path of this user sees it; none if there is no such table.
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped;

-- name: tables
-- All that this user may see, as a setting would name them: without a schema where the search path has it.
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_';

-- name: indexes
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%(table)s);
