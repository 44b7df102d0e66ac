-- What the doctor asks PostgreSQL; nothing here changes anything.

-- name: limits
-- A lock that somebody holds must not hold the doctor; as a statement, because poolers refuse it at connect time.
SET statement_timeout = '5s';

-- name: server
-- Who answers, and whether it takes writes.
SELECT current_setting('server_version'), CAST(current_setting('server_version_num') AS int),
       current_setting('autovacuum') = 'on', current_setting('transaction_read_only') = 'on', CAST(current_user AS text),
       CAST(coalesce(current_schema(), 'public') AS text), has_schema_privilege(coalesce(current_schema(), 'public'), 'CREATE');

-- name: table_exists
-- Whether a table is there, as the search path of this user sees it.
SELECT to_regclass(%(table)s) IS NOT NULL;

-- name: columns
-- The columns of a table.
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped;

-- name: index
-- Whether a valid unique index covers one column and every row.
SELECT count(*) > 0 FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
WHERE indrelid = to_regclass(%(table)s) AND attname = %(column)s
  AND indisunique AND indisvalid AND indnkeyatts = 1 AND indpred IS NULL;

-- name: sequence
-- The sequence of a column, how many ids a session takes from it at once, and whether it belongs to an identity.
SELECT CAST(CAST(seqrelid AS regclass) AS text), seqcache, attidentity <> ''
FROM pg_sequence, pg_attribute
WHERE seqrelid = CAST(pg_get_serial_sequence(%(table)s, %(column)s) AS regclass)
  AND attrelid = to_regclass(%(table)s) AND attname = %(column)s;

-- name: lacking
-- Which of some rights this user lacks on a table.
SELECT wanted FROM unnest(CAST(%(rights)s AS text[])) AS needed (wanted)
WHERE NOT has_table_privilege(to_regclass(%(table)s), wanted);

-- name: vacuum_off
-- Whether autovacuum is switched off for this table.
SELECT coalesce('autovacuum_enabled=false' = ANY (reloptions), false)
FROM pg_class WHERE oid = to_regclass(%(table)s);

-- name: listen
-- Half of the test that a notification comes through; a pooler in transaction mode loses it.
LISTEN inorder_doctor;

-- name: notify
-- The other half.
NOTIFY inorder_doctor;
