-- What the doctor asks MySQL and MariaDB; nothing here changes anything.

-- name: server
-- Who answers, and whether it takes writes.
SELECT VERSION(), CURRENT_USER(), @@global.read_only;

-- name: engine
-- What keeps the rows of a table; no row where there is no such table.
SELECT engine FROM information_schema.tables
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s;

-- name: columns
-- The columns of a table, and which of them number the rows.
SELECT column_name, extra LIKE '%%auto_increment%%' FROM information_schema.columns
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s;

-- name: index
-- Whether a unique index covers one column.
SELECT COUNT(*) > 0 FROM (
  SELECT index_name FROM information_schema.statistics
  WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s AND non_unique = 0
  GROUP BY index_name HAVING COUNT(*) = 1 AND MAX(column_name) = %(column)s
) AS found;

-- The next are explained and not run: that needs the right all the same.

-- name: try_SELECT
-- Reading.
EXPLAIN SELECT * FROM {table} WHERE {id} = 0;

-- name: try_INSERT
-- Publishing.
EXPLAIN INSERT INTO {table} ({id}) VALUES (0);

-- name: try_DELETE
-- Purging.
EXPLAIN DELETE FROM {table} WHERE {id} = 0;

-- name: try_UPDATE
-- Marking.
EXPLAIN UPDATE {table} SET {leader_id} = NULL WHERE {id} = 0;
