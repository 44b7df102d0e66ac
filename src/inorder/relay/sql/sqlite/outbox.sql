-- An outbox table on SQLite 3.35 and later, as the relay sees it. Lists of ids are bound as one JSON text.
--
-- A row of more than %(most)s bytes comes without its content and with its id negated: `stores/outbox_store.py`.

-- name: id_unless_large
-- The first of {columns}.
CASE WHEN {size} > %(most)s THEN -{column} ELSE {column} END;

-- name: unless_large
-- All others.
CASE WHEN {size} > %(most)s THEN NULL ELSE {column} END;

-- name: read
-- Rows above an id, oldest first.
SELECT {columns} FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s;

-- name: read_with_probes
-- The same, and single ids that were missing so far, in one snapshot.
SELECT {columns} FROM {table} WHERE {id} IN (SELECT value FROM json_each(%(probes)s))
UNION ALL
SELECT * FROM (SELECT {columns} FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s);

-- name: sizes
-- The sizes of some rows.
SELECT {id}, {size} FROM {table} WHERE {id} IN (SELECT value FROM json_each(%(probes)s));

-- name: read_shard
-- Rows of any shard above an id, and single ids that were missing so far; of those that are not ours only the ids.
SELECT kind, met_id, {columns}
FROM (
  SELECT * FROM (
    SELECT iif({mine}, 'ours', 'other') AS kind, {id} AS met_id FROM {table}
    WHERE {id} > %(above)s ORDER BY {id} LIMIT %(limit)s
  )
  UNION ALL
  SELECT iif({mine}, 'ours', 'other'), {id} FROM {table} WHERE {id} IN (SELECT value FROM json_each(%(probes)s))
) AS met
LEFT JOIN {table} ON {id} = met_id AND kind = 'ours';

-- name: walk_shard
-- Rows of our shard above an id, the ids of others in a window above it, and the largest id of all, in one snapshot.
SELECT kind, met_id, {columns}
FROM (
  SELECT * FROM (
    SELECT 'ours' AS kind, {id} AS met_id FROM {table}
    WHERE {id} > %(above)s AND {mine} ORDER BY {id} LIMIT %(limit)s
  )
  UNION ALL
  SELECT 'other', {id} FROM {table} WHERE {id} > %(above)s AND {id} <= %(others_to)s AND NOT {mine}
  UNION ALL
  SELECT 'top', MAX({id}) FROM {table}
) AS met
LEFT JOIN {table} ON {id} = met_id AND kind = 'ours';

-- name: mine
-- Whether a row is of our shard; SQLite has no digest, so the connection has `model/shard.py` itself.
(inorder_shard(CAST({topic} AS BLOB), {key}, {id}, {shards}) = {shard});

-- name: purge
-- Removes rows whose records are committed.
DELETE FROM {table} WHERE {id} IN (SELECT value FROM json_each(%(ids)s));

-- name: last_id
-- The last id that was given out.
SELECT seq FROM sqlite_sequence WHERE name = %(name)s;
