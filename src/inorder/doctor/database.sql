-- What the doctor asks PostgreSQL; nothing here changes anything.

-- name: limits
-- A lock that somebody holds must not hold the doctor; as a statement, because poolers refuse it at connect time.
SET statement_timeout = '5s';

-- name: server
-- Who answers, and whether it takes writes.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS number,
       current_setting('autovacuum') = 'on' AS autovacuum,
       pg_is_in_recovery() AS standby,
       current_user AS "user",
       has_schema_privilege(coalesce(current_schema(), 'public'), 'CREATE') AS may_create;

-- name: table_exists
-- Whether a table is there, as the search path of this user sees it.
SELECT to_regclass(%(table)s) IS NOT NULL AS found;

-- name: columns
-- The columns of a table.
SELECT attname AS name FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped;

-- name: primary_key
-- The columns of a table's primary key, in order; no row where it has none or its index is not valid.
SELECT a.attname AS name
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS part (attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = part.attnum
WHERE i.indrelid = to_regclass(%(table)s) AND i.indisprimary AND i.indisvalid
ORDER BY part.place;

-- name: identity_cache
-- How many ids a session takes at once.
SELECT seqcache AS cache FROM pg_sequence
WHERE seqrelid = pg_get_serial_sequence(%(table)s, 'id')::regclass;

-- name: rights
-- What this user may do with a table.
SELECT has_table_privilege(to_regclass(%(table)s), 'INSERT') AS insert,
       has_table_privilege(to_regclass(%(table)s), 'SELECT') AS select,
       has_table_privilege(to_regclass(%(table)s), 'DELETE') AS delete;

-- name: vacuum_off
-- Whether autovacuum is switched off for this table.
SELECT coalesce('autovacuum_enabled=false' = ANY (reloptions), false) AS off
FROM pg_class WHERE oid = to_regclass(%(table)s);

-- name: listen
-- Half of the test that a notification comes through; a pooler in transaction mode loses it.
LISTEN inorder_doctor;

-- name: notify
-- The other half.
NOTIFY inorder_doctor;
