-- name: install_archive
-- Published rows, a partition for each day (UTC). No index: it is written all day and read when something is replayed, and then
-- whole days of it. Rows that are replayed and published again are here once more, under new ids, which {replayed} lists.
CREATE TABLE IF NOT EXISTS {archive} (
  id bigint NOT NULL,
  topic varchar(249) NOT NULL,
  "key" bytea,
  "value" bytea,
  headers text,
  "partition" integer,
  "timestamp" bigint,
  created_at timestamptz NOT NULL,
  published_at timestamptz NOT NULL
) PARTITION BY RANGE (published_at);

-- name: install_replayed
-- Ids of the copies that a replay has put into the outbox. A copy is archived like any row, and is not replayed again.
CREATE TABLE IF NOT EXISTS {replayed} (id bigint PRIMARY KEY);

-- name: forget_replayed
-- Copies that are in neither table any more: their day was dropped.
DELETE FROM {replayed} AS copy
WHERE NOT EXISTS (SELECT FROM {table} AS waiting WHERE waiting.id = copy.id)
AND NOT EXISTS (SELECT FROM {archive} AS kept WHERE kept.id = copy.id);

-- name: has_partition
-- Whether the day has its partition.
SELECT to_regclass(%(partition)s) IS NOT NULL;

-- name: make_partition
-- The table of a day, not yet attached: created in place it would lock everybody out of the whole archive.
CREATE TABLE {partition} (LIKE {archive} INCLUDING ALL);

-- name: attach_partition
-- Lets writers go on meanwhile. The table is empty, so there is nothing to check.
ALTER TABLE {archive} ATTACH PARTITION {partition} FOR VALUES FROM ('{day} 00:00+00') TO ('{next_day} 00:00+00');

-- name: partitions
-- The tables of the days.
SELECT child.relname FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = to_regclass(%(archive)s)
ORDER BY child.relname;

-- name: lock_briefly
-- Dropping a partition waits for readers of the archive, and all others for it: rather give up, and try again later.
SET LOCAL lock_timeout = '2s';

-- name: drop_partition
-- A whole day at once, which costs nothing and leaves nothing to vacuum.
DROP TABLE IF EXISTS {partition};

-- name: archive
-- Moves rows whose records are committed: they are in one of the two tables, whatever happens. None is moved if the table was
-- truncated since they were read: then these are other rows.
WITH gone AS (
  DELETE FROM {table}
  WHERE id = ANY(%(ids)s) AND pg_relation_filenode(to_regclass(%(table)s)) IS NOT DISTINCT FROM %(incarnation)s::oid
  RETURNING id, topic, "key", "value", headers, "partition", "timestamp", created_at
)
INSERT INTO {archive} (id, topic, "key", "value", headers, "partition", "timestamp", created_at, published_at)
SELECT id, topic, "key", "value", headers, "partition", "timestamp", created_at, %(now)s FROM gone;

-- name: wanted
-- What a replay is asked for; a filter that is null matches everything.
(CAST(%(topic)s AS text) IS NULL OR topic = %(topic)s)
AND (CAST(%(key)s AS bytea) IS NULL OR "key" = %(key)s)
AND published_at >= COALESCE(CAST(%(since)s AS timestamptz), '-infinity')
AND NOT EXISTS (SELECT FROM {replayed} AS copy WHERE copy.id = {archive}.id);

-- name: count_archived
-- How many rows a replay would put back.
SELECT count(*) FROM {archive}
WHERE {wanted};

-- name: replay
-- Copies with new ids, in the order of the old: after everything that waits already. Their ids are noted.
WITH copied AS (
  INSERT INTO {table} (topic, "key", "value", headers, "partition", "timestamp")
  SELECT topic, "key", "value", headers, "partition", "timestamp" FROM {archive}
  WHERE {wanted}
  ORDER BY id
  RETURNING id
)
INSERT INTO {replayed} (id) SELECT id FROM copied;

-- name: wake
-- Relays that sleep look at the outbox again once this is committed.
SELECT pg_notify('inorder_' || CAST(CAST(to_regclass(%(table)s) AS oid) AS text), '');

-- name: today
-- The day by the clock of the database, which is one for all instances.
SELECT CAST(now() AT TIME ZONE 'UTC' AS date);
