-- Statements of the relay on an outbox table of any layout. {id}, {columns} and their like are fragments of the layout
-- (outbox/layouts), {mine} is whether a row belongs to our shard.
--
-- A row of more than %(most)s bytes (`is_large`) comes without its content and with its id negated: `stores/outbox_store.py`. Its
-- size is computed once a row, below the columns, and from the lengths that the row itself has: no value is loaded for that.

-- name: id_unless_large
-- The first of {columns}.
CASE WHEN is_large THEN -{column} ELSE {column} END;

-- name: unless_large
-- All others.
CASE WHEN is_large THEN NULL ELSE {column} END;

-- name: plan_by_index
-- Our connections look rows up by the index of the id, always. The planner would rather read and sort the whole table where it
-- guesses wrongly: the table is mostly dead rows, its statistics are old, and whose rows are ours is opaque to it. jit off, because an
-- avoided plan that must be taken after all (`reset`) is costed so high that it would be compiled. Since values cannot change
-- the plan, a prepared statement is planned once and not for each read, which would be half of the time of a small one.
SELECT set_config(name, setting, false)
FROM (VALUES
  ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'), ('jit', 'off'),
  ('plan_cache_mode', 'force_generic_plan')
) AS settings (name, setting);

-- name: mine
-- The shard of a row, as model/partitioning.py computes it: seven hexadecimal digits of a hash, which are 28 bits.
mod(CAST(CAST('x' || substr(md5(
  convert_to({topic}, 'UTF8') || decode('00', 'hex') || COALESCE({key}, convert_to(CAST({id} AS text), 'UTF8'))
), 1, 7) AS bit(28)) AS integer), {shards}) = {shard};

-- name: read
-- Rows above an id, oldest first.
SELECT {columns} FROM (
  SELECT *, {size} > %(most)s AS is_large FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s
) AS met;

-- name: read_with_probes
-- The same, and single ids that were missing so far, in one snapshot.
SELECT {columns} FROM (
  SELECT *, {size} > %(most)s AS is_large FROM {table} WHERE {id} = ANY(%(probes)s)
  UNION ALL
  (SELECT *, {size} > %(most)s AS is_large FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s)
) AS met;

-- name: sizes
-- The sizes of some rows.
SELECT {id}, {size} FROM {table} WHERE {id} = ANY(%(probes)s);

-- name: read_shard
-- The same with several shards: our rows behind two columns that are null, and one row where those have the ids of the other
-- shards' rows, whose values stay where they are. FULL JOIN ON false puts the two below one another, which UNION could do
-- only if it knew the columns.
WITH met AS MATERIALIZED (
  SELECT *, {mine} AS is_mine FROM {table} WHERE {id} = ANY(%(probes)s)
  UNION ALL
  (SELECT *, {mine} AS is_mine FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s)
)
SELECT about.others, about.top, page.*
FROM (SELECT ARRAY(SELECT {id} FROM met WHERE NOT is_mine) AS others, (SELECT max({id}) FROM met) AS top) AS about
FULL JOIN (
  SELECT {columns} FROM (SELECT *, {size} > %(most)s AS is_large FROM met WHERE is_mine) AS ours
) AS page ON false;

-- name: walk_shard
-- The oldest rows of ours above an id, however many of other shards lie between; beside them the ids of the other shards'
-- rows as far as the window goes, and the largest id of all.
SELECT about.others, about.top, page.*
FROM (
  SELECT
    ARRAY(SELECT {id} FROM {table} WHERE {id} > %(above)s AND {id} <= %(others_to)s AND NOT {mine}) AS others,
    (SELECT max({id}) FROM {table}) AS top
) AS about
FULL JOIN (
  SELECT {columns} FROM (
    SELECT *, {size} > %(most)s AS is_large FROM {table} WHERE {id} > %(above)s AND {mine} ORDER BY {id} LIMIT %(limit)s
  ) AS ours
) AS page ON false;

-- name: holders
-- Transactions that may have taken ids: every writer locks the table before it takes one, and until it has ended.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = %(table)s::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: incarnation
-- The file of the table: another one after TRUNCATE, and after everything else that writes the table anew. A partitioned table has
-- none.
SELECT pg_relation_filenode(to_regclass(%(table)s));

-- name: purge
-- Removes rows whose records are committed, from the table that they were read from. The file is looked up behind the lock that this
-- statement takes first, so the table cannot be truncated between the comparison and the end of the transaction.
DELETE FROM {table}
WHERE {id} = ANY(%(ids)s) AND pg_relation_filenode(to_regclass(%(table)s)) IS NOT DISTINCT FROM %(incarnation)s::oid;

-- name: server
-- The cluster and its time line: a replica has the same identifier, and gets a time line of its own when it is promoted.
SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) FROM pg_control_system();

-- name: last_id
-- The last id that the sequence of the table has given out: 0 if none, NULL if it has no sequence that we may read.
SELECT coalesce(pg_sequence_last_value(id), 0)
FROM CAST(pg_get_serial_sequence(%(table)s, %(id)s) AS regclass) AS id
WHERE has_sequence_privilege(id, 'USAGE, SELECT');
