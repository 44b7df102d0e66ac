-- An outbox table on MySQL 8 and MariaDB 10.6 and later, as the relay sees it.
--
-- {index} is the index that begins with {id}. Lists of ids are bound as one JSON text and joined to the table by that index, in
-- this order and by no other plan. With `IN (…)` the optimiser would walk over the whole table as soon as the list is a good
-- part of it, and a DELETE or UPDATE that walks waits for the rows of every open transaction on its way.
--
-- A row of more than %(most)s bytes comes without its content and with its id negated: `stores/outbox_store.py`. Each column
-- asks for itself, because a derived table with LIMIT would be written to disk. The id may be unsigned.

-- name: id_unless_large
-- The first of {columns}.
CASE WHEN {size} > %(most)s THEN -CAST({column} AS SIGNED) ELSE CAST({column} AS SIGNED) END;

-- name: unless_large
-- All others.
CASE WHEN {size} > %(most)s THEN NULL ELSE {column} END;

-- name: index
-- The index that begins with the id.
SELECT index_name FROM information_schema.statistics
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s
  AND seq_in_index = 1 AND column_name = %(id)s
ORDER BY index_name = 'PRIMARY' DESC LIMIT 1;

-- name: read
-- Rows above an id, oldest first.
SELECT {columns} FROM {table} FORCE INDEX ({index})
WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s;

-- name: read_with_probes
-- The same, and single ids that were missing so far, in one snapshot.
SELECT {columns} FROM JSON_TABLE(%(probes)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} FORCE INDEX ({index}) ON {id} = listed
UNION ALL
(SELECT {columns} FROM {table} FORCE INDEX ({index})
 WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s);

-- name: sizes
-- The sizes of some rows.
SELECT {id}, {size} FROM JSON_TABLE(%(probes)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} FORCE INDEX ({index}) ON {id} = listed;

-- name: read_shard
-- Rows of any shard above an id; of those that are not ours only the ids.
SELECT kind, met_id, {columns}
FROM (
  SELECT IF({mine}, 'ours', 'other') AS kind, {id} AS met_id FROM {table} FORCE INDEX ({index})
  WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s
) AS met
LEFT JOIN {table} FORCE INDEX ({index}) ON {id} = met_id AND kind = 'ours';

-- name: read_shard_with_probes
-- The same, and single ids that were missing so far, in one snapshot.
SELECT kind, met_id, {columns}
FROM (
  (SELECT IF({mine}, 'ours', 'other') AS kind, {id} AS met_id FROM {table} FORCE INDEX ({index})
   WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s)
  UNION ALL
  SELECT IF({mine}, 'ours', 'other'), {id} FROM JSON_TABLE(%(probes)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
  STRAIGHT_JOIN {table} FORCE INDEX ({index}) ON {id} = listed
) AS met
LEFT JOIN {table} FORCE INDEX ({index}) ON {id} = met_id AND kind = 'ours';

-- name: walk_shard
-- Rows of our shard above an id, the ids of others in a window above it, and the largest id of all, in one snapshot.
SELECT kind, met_id, {columns}
FROM (
  (SELECT 'ours' AS kind, {id} AS met_id FROM {table} FORCE INDEX ({index})
   WHERE {id} > %(above)s AND {mine} ORDER BY {id} LIMIT %(limit)s)
  UNION ALL
  SELECT 'other', {id} FROM {table} FORCE INDEX ({index})
  WHERE {id} > %(above)s AND {id} <= %(others_to)s AND NOT {mine}
  UNION ALL
  SELECT 'top', MAX({id}) FROM {table}
) AS met
LEFT JOIN {table} FORCE INDEX ({index}) ON {id} = met_id AND kind = 'ours';

-- name: mine
-- Whether a row is of our shard, as `model/partitioning.py` computes it. CONCAT with bytes in it gives bytes.
(MOD(CONV(LEFT(MD5(CONCAT(
  CONVERT({topic} USING utf8mb4), 0x00, COALESCE({key}, CAST({id} AS CHAR))
)), 7), 16, 10), {shards}) = {shard});

-- name: holders
-- Transactions that may have taken ids: every writer locks the table before it takes one, and until it has ended. The row
-- without a name says that the server keeps the list, and that no lock was too many for it.
SELECT CONCAT_WS('/', OWNER_THREAD_ID, OWNER_EVENT_ID, OBJECT_INSTANCE_BEGIN)
FROM performance_schema.metadata_locks
WHERE OBJECT_TYPE = 'TABLE' AND LOCK_STATUS = 'GRANTED'
  AND LOCK_TYPE IN ('SHARED_WRITE', 'SHARED_WRITE_LOW_PRIO', 'SHARED_NO_READ_WRITE')
  AND OBJECT_SCHEMA = IF(@@lower_case_table_names, LOWER(COALESCE(%(schema)s, DATABASE())), COALESCE(%(schema)s, DATABASE()))
  AND OBJECT_NAME = IF(@@lower_case_table_names, LOWER(%(name)s), %(name)s)
UNION ALL
SELECT NULL FROM performance_schema.setup_instruments
WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES'
  AND (SELECT VARIABLE_VALUE FROM performance_schema.global_status
       WHERE VARIABLE_NAME = 'Performance_schema_metadata_lock_lost') = '0';

-- name: prepared
-- XA transactions that are prepared: one whose connection is gone holds ids and no lock that is listed.
XA RECOVER;

-- name: purge
-- Removes rows whose records are committed.
DELETE outbox FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} AS outbox FORCE INDEX ({index}) ON outbox.{id} = listed;

-- name: server
-- What tells servers apart; MariaDB has no server_uuid.
SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id', 'hostname', 'port');

-- name: next_id
-- The id that the next row gets. MySQL 8 would answer from statistics that may be a day old.
SELECT /*+ SET_VAR(information_schema_stats_expiry = 0) */ auto_increment FROM information_schema.tables
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s;
