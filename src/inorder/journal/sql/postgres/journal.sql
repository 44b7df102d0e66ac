-- The tables that journals are replicated to, as Kafka Journal has them in Cassandra, with PostgreSQL's types.

-- name: install_journal
-- The events. "segment" cuts a journal into pieces, as in Cassandra; here it only leads the key.
CREATE TABLE IF NOT EXISTS journal (
    id             text        NOT NULL,
    topic          text        NOT NULL,
    segment        bigint      NOT NULL,
    seq_nr         bigint      NOT NULL,
    "partition"    integer     NOT NULL,
    "offset"       bigint      NOT NULL,
    "timestamp"    timestamptz NOT NULL,
    origin         text,
    version        text,
    meta_record_id uuid,
    tags           text[]      NOT NULL DEFAULT '{{}}',
    metadata       text,
    payload_type   text,
    payload_txt    text,
    payload_bin    bytea,
    headers        jsonb,
    PRIMARY KEY (topic, id, segment, seq_nr, "timestamp")
);

-- name: install_metajournal
-- The head of each journal: what of its topic is in the store, and what of that is visible.
CREATE TABLE IF NOT EXISTS metajournal (
    topic        text        NOT NULL,
    segment      bigint      NOT NULL,
    id           text        NOT NULL,
    "partition"  integer     NOT NULL,
    "offset"     bigint      NOT NULL,
    segment_size integer     NOT NULL,
    seq_nr       bigint      NOT NULL,
    delete_to    bigint,
    created      timestamptz NOT NULL,
    created_date date        NOT NULL,
    updated      timestamptz NOT NULL,
    expire_after interval,
    expire_on    date,
    record_id    uuid,
    origin       text,
    properties   jsonb       NOT NULL DEFAULT '{{}}',
    metadata     text,
    PRIMARY KEY (topic, id)
);

-- name: install_metajournal_created
CREATE INDEX IF NOT EXISTS metajournal_created_date ON metajournal (topic, created_date);

-- name: install_metajournal_expiry
CREATE INDEX IF NOT EXISTS metajournal_expire_on ON metajournal (topic, expire_on) WHERE expire_on IS NOT NULL;

-- name: install_pointer
-- Every record of the partition up to the offset is applied.
CREATE TABLE IF NOT EXISTS pointer2 (
    topic       text        NOT NULL,
    "partition" integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    created     timestamptz NOT NULL DEFAULT now(),
    updated     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, "partition")
);

-- name: install_topic
-- Which topic of a name the rows belong to; Kafka Journal does not have this table.
CREATE TABLE IF NOT EXISTS journal_topic (
    topic      text        NOT NULL PRIMARY KEY,
    topic_id   text,
    partitions integer     NOT NULL,
    number     integer     NOT NULL DEFAULT 0,
    created    timestamptz NOT NULL DEFAULT now(),
    updated    timestamptz NOT NULL DEFAULT now()
);

-- name: install_setting
-- What the store knows of itself; schema-version is the number of its last migration.
CREATE TABLE IF NOT EXISTS setting (
    key         text        NOT NULL PRIMARY KEY,
    value       text        NOT NULL,
    "timestamp" timestamptz NOT NULL DEFAULT now(),
    origin      text,
    metadata    text
);

-- name: install_locks
-- Kept for the shape of the original; here an advisory lock guards the migrations.
CREATE TABLE IF NOT EXISTS locks (
    id          text        NOT NULL PRIMARY KEY,
    expiry_ms   bigint      NOT NULL,
    "timestamp" timestamptz NOT NULL,
    metadata    text
);

-- name: install_snapshot
-- A ring of snapshots a journal, overwritten in place.
CREATE TABLE IF NOT EXISTS snapshot (
    id             text        NOT NULL,
    topic          text        NOT NULL,
    buffer_idx     integer     NOT NULL,
    seq_nr         bigint      NOT NULL,
    "timestamp"    timestamptz NOT NULL,
    origin         text,
    version        text,
    metadata       text,
    payload_type   text,
    payload_txt    text,
    payload_bin    bytea,
    "partition"    integer     NOT NULL DEFAULT 0,
    "offset"       bigint      NOT NULL DEFAULT 0,
    meta_record_id uuid,
    PRIMARY KEY (topic, id, buffer_idx)
);

-- name: install_snapshot_place
-- What tables of the first version lack: where in the topic a snapshot was saved, and in which life of its journal.
-- Asked first, since ALTER TABLE waits for every open transaction of the table.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass('snapshot') AND attname = 'offset' AND NOT attisdropped
  ) THEN
    ALTER TABLE snapshot
      ADD COLUMN IF NOT EXISTS "partition" integer NOT NULL DEFAULT 0,
      ADD COLUMN IF NOT EXISTS "offset" bigint NOT NULL DEFAULT 0,
      ADD COLUMN IF NOT EXISTS meta_record_id uuid;
  END IF;
END
$$;

-- name: install_quarantine
-- Records that are not applied, as they came: one that cannot be read, and those behind it in its journal.
CREATE TABLE IF NOT EXISTS quarantine (
    topic       text        NOT NULL,
    id          text        NOT NULL,
    "partition" integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    reason      text        NOT NULL,
    key         bytea,
    value       bytea,
    headers     text        NOT NULL,
    "timestamp" timestamptz,
    created     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, id, "partition", "offset")
);

-- name: install_version
-- A fresh schema begins with the last migration.
INSERT INTO setting (key, value) VALUES ('schema-version', '{version}') ON CONFLICT (key) DO NOTHING;

-- name: install_identity
-- Tells notices about this store from those about others.
INSERT INTO setting (key, value) VALUES ('store-id', gen_random_uuid()::text) ON CONFLICT (key) DO NOTHING;

-- name: identity
SELECT value FROM setting WHERE key = 'store-id';

-- name: head
-- The head, and where the quarantine of the journal begins; always one row.
SELECT h."partition", h."offset", h.segment_size, h.seq_nr, h.delete_to, h.expire_after, h.expire_on, h.record_id,
       q."partition", q."offset"
FROM (SELECT 1) AS one
LEFT JOIN metajournal h ON h.topic = %(topic)s AND h.id = %(id)s
LEFT JOIN LATERAL (
    SELECT "partition", "offset" FROM quarantine WHERE topic = %(topic)s AND id = %(quarantine_id)s
    ORDER BY "partition", "offset" LIMIT 1
) q ON true;

-- name: offset
SELECT "offset" FROM pointer2 WHERE topic = %(topic)s AND "partition" = %(partition)s;

-- name: events
-- One page of a journal, along its key: a row is behind the last one of the page before.
SELECT segment, seq_nr, "timestamp", "partition", "offset", origin, version, tags, metadata,
       payload_type, payload_txt, payload_bin, coalesce(headers, '{}')
FROM journal
WHERE topic = %(topic)s AND id = %(id)s
  AND (segment, seq_nr, "timestamp") > (%(segment)s, %(seq_nr)s, %(timestamp)s::timestamptz)
  AND (segment, seq_nr) <= (%(last_segment)s, %(last_seq_nr)s)
  AND (%(record_id)s::uuid IS NULL OR meta_record_id = %(record_id)s)
ORDER BY segment, seq_nr, "timestamp"
LIMIT %(limit)s;

-- name: ids
-- Those with a head and those that are parked, perhaps since their first record; each side along its key.
(SELECT id FROM metajournal WHERE topic = %(topic)s AND id > %(above)s ORDER BY id LIMIT %(limit)s)
UNION
(SELECT DISTINCT id FROM quarantine WHERE topic = %(topic)s AND id > %(above)s ORDER BY id LIMIT %(limit)s)
ORDER BY id LIMIT %(limit)s;

-- name: expired
SELECT id FROM metajournal
WHERE topic = %(topic)s AND expire_on < %(before)s AND id > %(above)s ORDER BY id LIMIT %(limit)s;

-- name: listed
SELECT id, seq_nr, delete_to, created, updated, origin, expire_on FROM metajournal
WHERE topic = %(topic)s AND id > %(above)s ORDER BY id LIMIT %(limit)s;

-- name: listed_created
SELECT id, seq_nr, delete_to, created, updated, origin, expire_on FROM metajournal
WHERE topic = %(topic)s AND created_date = %(day)s AND id > %(above)s ORDER BY id LIMIT %(limit)s;

-- name: listed_expires
SELECT id, seq_nr, delete_to, created, updated, origin, expire_on FROM metajournal
WHERE topic = %(topic)s AND expire_on = %(day)s AND id > %(above)s ORDER BY id LIMIT %(limit)s;

-- name: offsets
SELECT "partition", "offset" FROM pointer2 WHERE topic = %(topic)s;

-- name: lock_offset
-- The mutex of a partition: held until the transaction ends.
SELECT "offset" FROM pointer2 WHERE topic = %(topic)s AND "partition" = %(partition)s FOR UPDATE;

-- name: insert_offset
-- Before the first record of a partition; a rival's insert is waited for and kept.
INSERT INTO pointer2 (topic, "partition", "offset") VALUES (%(topic)s, %(partition)s, -1)
ON CONFLICT (topic, "partition") DO NOTHING;

-- name: move_offset
-- Nothing if another topic was accepted under that name since the slice was read. A statement after the lock sees that.
UPDATE pointer2 SET "offset" = %(offset)s, updated = now()
WHERE topic = %(topic)s AND "partition" = %(partition)s AND "offset" < %(offset)s
  AND NOT EXISTS (SELECT FROM journal_topic t WHERE t.topic = %(topic)s AND t.topic_id <> %(topic_id)s::text);

-- name: heads
SELECT id, "partition", "offset", segment_size, seq_nr, delete_to, expire_after, expire_on, record_id
FROM metajournal WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: copy_events
-- {columns} are those of `journal_copy`.
COPY journal ({columns}) FROM STDIN (FORMAT binary);

-- name: insert_events
-- Where events may be there already.
INSERT INTO journal (id, segment, seq_nr, "timestamp", meta_record_id, "partition", "offset", origin, version, tags,
                     metadata, payload_type, payload_txt, payload_bin, headers, topic)
SELECT x.id, x.segment, x.seq_nr, x.time, x.record_id, x.part, x.place, x.origin, x.version,
       -- An array of arrays cannot be unnested by one step, so tags come as JSON.
       ARRAY(SELECT jsonb_array_elements_text(x.tags::jsonb)),
       x.metadata, x.payload_type, x.payload_txt, x.payload_bin, x.headers::jsonb, %(topic)s
FROM unnest(%(ids)s::text[], %(segments)s::bigint[], %(seq_nrs)s::bigint[], %(timestamps)s::timestamptz[],
            %(record_ids)s::uuid[], %(partitions)s::integer[], %(offsets)s::bigint[], %(origins)s::text[],
            %(versions)s::text[], %(tags)s::text[], %(metadata)s::text[], %(payload_types)s::text[],
            %(payload_txts)s::text[], %(payload_bins)s::bytea[], %(headers)s::text[])
     AS x (id, segment, seq_nr, time, record_id, part, place, origin, version, tags, metadata, payload_type,
           payload_txt, payload_bin, headers)
ON CONFLICT DO NOTHING;

-- name: write_heads
-- The heads that a slice leads to; what only a new head has (created, origin) stays as it was.
INSERT INTO metajournal (topic, id, segment, "partition", "offset", segment_size, seq_nr, delete_to, created,
                         created_date, updated, expire_after, expire_on, record_id, origin)
SELECT %(topic)s, x.id, x.segment, x.part, x.place, x.size, x.seq_nr, x.delete_to, x.created,
       (x.created AT TIME ZONE 'UTC')::date, x.updated, x.expire_after, x.expire_on, x.record_id, x.origin
FROM unnest(%(ids)s::text[], %(segments)s::bigint[], %(partitions)s::integer[], %(offsets)s::bigint[],
            %(sizes)s::integer[], %(seq_nrs)s::bigint[], %(deletes_to)s::bigint[], %(created)s::timestamptz[],
            %(updated)s::timestamptz[], %(expires_after)s::interval[], %(expires_on)s::date[],
            %(record_ids)s::uuid[], %(origins)s::text[])
     AS x (id, segment, part, place, size, seq_nr, delete_to, created, updated, expire_after, expire_on, record_id,
           origin)
ON CONFLICT (topic, id) DO UPDATE SET
    "partition" = excluded."partition",
    "offset" = excluded."offset",
    seq_nr = excluded.seq_nr,
    delete_to = excluded.delete_to,
    updated = excluded.updated,
    expire_after = excluded.expire_after,
    expire_on = excluded.expire_on,
    record_id = excluded.record_id;

-- name: delete_events
-- Whole segments; of the last one perhaps only the rows up to a number.
DELETE FROM journal
WHERE topic = %(topic)s AND id = %(id)s AND segment BETWEEN %(first)s AND %(last)s
  AND (segment < %(last)s OR %(to)s::bigint IS NULL OR seq_nr <= %(to)s);

-- name: delete_heads
DELETE FROM metajournal WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: lock_snapshots
-- Waits for savers who have looked at a journal's life and have not committed; the others see what this slice does.
SELECT pg_advisory_xact_lock(
    hashtextextended('inorder snapshots ' || %(partition)s::integer || ' ' || %(topic)s::text, 0)
);

-- name: void_snapshots
-- Those that were saved before a purge; offsets of another partition cannot be compared, and are of the past.
DELETE FROM snapshot s
USING unnest(%(ids)s::text[], %(offsets)s::bigint[]) AS x (id, place)
WHERE s.topic = %(topic)s AND s.id = x.id AND (s."partition" <> %(partition)s OR s."offset" < x.place);

-- name: session
-- The server's patience with a replicator that was paused within a transaction, and ours with one that holds the row.
SELECT set_config('idle_in_transaction_session_timeout', '10s', %(is_local)s),
       set_config('lock_timeout', '60s', %(is_local)s);

-- name: parked
SELECT DISTINCT id FROM quarantine WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: insert_quarantined
INSERT INTO quarantine (topic, id, "partition", "offset", reason, key, value, headers, "timestamp")
SELECT %(topic)s, x.*
FROM unnest(%(ids)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(reasons)s::text[], %(keys)s::bytea[],
            %(values)s::bytea[], %(headers)s::text[], %(timestamps)s::timestamptz[]) AS x
ON CONFLICT DO NOTHING;

-- name: free
DELETE FROM quarantine WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: lift
DELETE FROM quarantine
WHERE topic = %(topic)s AND id = %(id)s AND "partition" = %(at)s AND "offset" = %(offset)s;

-- name: quarantined
SELECT topic, id, "partition", reason, "offset", "timestamp", key, value, headers
FROM quarantine
WHERE (%(topic)s::text IS NULL OR topic = %(topic)s) AND (%(id)s::text IS NULL OR id = %(id)s)
ORDER BY topic, id, "partition", "offset";

-- name: discard
DELETE FROM quarantine
WHERE topic = %(topic)s AND id = %(id)s AND (%(offset)s::bigint IS NULL OR "offset" = %(offset)s);

-- name: incarnation
SELECT topic_id, partitions, number FROM journal_topic WHERE topic = %(topic)s;

-- name: has_incarnations
SELECT to_regclass('journal_topic') IS NOT NULL;

-- name: adopt
-- The first one wins; a row without an id gets the first one seen.
INSERT INTO journal_topic AS t (topic, topic_id, partitions) VALUES (%(topic)s, %(topic_id)s, %(partitions)s)
ON CONFLICT (topic) DO UPDATE SET topic_id = excluded.topic_id, updated = now() WHERE t.topic_id IS NULL;

-- name: lock_offsets
-- All slices of the topic are done, and none begins, until the transaction ends.
SELECT "partition", "offset" FROM pointer2 WHERE topic = %(topic)s ORDER BY "partition" FOR UPDATE;

-- name: set_offsets
INSERT INTO pointer2 (topic, "partition", "offset")
SELECT %(topic)s, x.* FROM unnest(%(partitions)s::integer[], %(offsets)s::bigint[]) AS x
ON CONFLICT (topic, "partition") DO UPDATE SET "offset" = excluded."offset", updated = now();

-- name: delete_offsets
DELETE FROM pointer2 WHERE topic = %(topic)s AND NOT "partition" = ANY(%(partitions)s);

-- name: retire_events
-- Places of the past, which no rule takes for those of the present topic; NULL for all partitions.
UPDATE journal SET "partition" = "partition" + %(former)s
WHERE topic = %(topic)s AND "partition" < %(former)s
  AND (%(partitions)s::integer[] IS NULL OR "partition" = ANY(%(partitions)s));

-- name: retire_heads
UPDATE metajournal SET "partition" = "partition" + %(former)s
WHERE topic = %(topic)s AND "partition" < %(former)s
  AND (%(partitions)s::integer[] IS NULL OR "partition" = ANY(%(partitions)s));

-- name: retire_snapshots
UPDATE snapshot SET "partition" = "partition" + %(former)s
WHERE topic = %(topic)s AND "partition" < %(former)s
  AND (%(partitions)s::integer[] IS NULL OR "partition" = ANY(%(partitions)s));

-- name: set_incarnation
INSERT INTO journal_topic (topic, topic_id, partitions, number)
VALUES (%(topic)s, %(topic_id)s, %(partitions)s, %(number)s)
ON CONFLICT (topic) DO UPDATE
SET topic_id = excluded.topic_id, partitions = excluded.partitions, number = excluded.number, updated = now();

-- name: waiting
SELECT id, "partition", "offset" FROM quarantine WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: rows
-- Everything that is there, visible or not. One page of a journal, along its key: a row is behind the last one of the page before.
SELECT segment, seq_nr, "timestamp", meta_record_id, "partition", "offset", origin, version, tags, metadata,
       payload_type, payload_txt, payload_bin, coalesce(headers, '{}')
FROM journal
WHERE topic = %(topic)s AND id = %(id)s
  AND (segment, seq_nr, "timestamp") > (%(segment)s, %(seq_nr)s, %(timestamp)s::timestamptz)
ORDER BY segment, seq_nr, "timestamp"
LIMIT %(limit)s;
