-- name: install_projection
-- One row a partition: all records below next_offset are in the read model. While scan_id is set, the store's journals after that id
-- are still to be read; up to store_to the store decides about journals that have no row below.
CREATE TABLE IF NOT EXISTS inorder_projection (
    projection  TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    topic_id    TEXT,
    scan_id     TEXT,
    store_to    INTEGER,
    failures    INTEGER NOT NULL DEFAULT 0,
    error       TEXT,
    updated_at  TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (projection, topic, partition)
);

-- name: install_projection_journal
-- One row a journal: its life as of the last record that was applied, by which the next one is judged.
CREATE TABLE IF NOT EXISTS inorder_projection_journal (
    projection TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    partition  INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    seq_nr     INTEGER NOT NULL,
    delete_to  INTEGER NOT NULL,
    is_begun   INTEGER NOT NULL,
    life       TEXT,
    applied    INTEGER NOT NULL,
    PRIMARY KEY (projection, topic, partition, id)
);

-- name: insert
-- The first start of a partition; a second one changes nothing.
INSERT INTO inorder_projection (projection, topic, partition, next_offset, topic_id)
VALUES (%(projection)s, %(topic)s, %(partition)s, %(next_offset)s, %(topic_id)s)
ON CONFLICT DO NOTHING;

-- name: lock
-- A transaction is the only writer.
SELECT next_offset, topic_id, scan_id, store_to
FROM inorder_projection
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s;

-- name: lock_all
-- A transaction is the only writer.
SELECT partition FROM inorder_projection WHERE projection = %(projection)s ORDER BY topic, partition;

-- name: journals
-- What is known of some journals; ids is a JSON array.
SELECT id, seq_nr, delete_to, is_begun, life, applied
FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s
  AND id IN (SELECT value FROM json_each(%(ids)s));

-- name: save_journals
-- rows is a JSON array of objects.
INSERT INTO inorder_projection_journal
    (projection, topic, partition, id, seq_nr, delete_to, is_begun, life, applied)
SELECT %(projection)s, %(topic)s, %(partition)s, r.value ->> 'id', r.value ->> 'seq_nr', r.value ->> 'delete_to',
    r.value ->> 'is_begun', r.value ->> 'life', r.value ->> 'applied'
FROM json_each(%(rows)s) AS r
WHERE true
ON CONFLICT (projection, topic, partition, id) DO UPDATE
SET seq_nr = excluded.seq_nr, delete_to = excluded.delete_to, is_begun = excluded.is_begun, life = excluded.life,
    applied = excluded.applied;

-- name: remove_journals
-- Purged ones; ids is a JSON array.
DELETE FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s
  AND id IN (SELECT value FROM json_each(%(ids)s));
