-- name: install_projection
-- One row a partition: all records below next_offset are in the read model. While scan_id is set, the store's journals after that id
-- are still to be read; up to store_to the store decides about journals that have no row below.
CREATE TABLE IF NOT EXISTS inorder_projection (
    projection  text        NOT NULL,
    topic       text        NOT NULL,
    partition   integer     NOT NULL,
    next_offset bigint      NOT NULL,
    topic_id    text,
    scan_id     text        COLLATE "C",
    store_to    bigint,
    failures    integer     NOT NULL DEFAULT 0,
    error       text,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, topic, partition)
);

-- name: install_projection_journal
-- One row a journal: its life as of the last record that was applied, by which the next one is judged.
CREATE TABLE IF NOT EXISTS inorder_projection_journal (
    projection text    NOT NULL,
    topic      text    NOT NULL,
    partition  integer NOT NULL,
    id         text    COLLATE "C" NOT NULL,
    seq_nr     bigint  NOT NULL,
    delete_to  bigint  NOT NULL,
    is_begun   boolean NOT NULL,
    life       text,
    applied    bigint  NOT NULL,
    PRIMARY KEY (projection, topic, partition, id)
);

-- name: insert
-- The first start of a partition; a second one changes nothing.
INSERT INTO inorder_projection (projection, topic, partition, next_offset, topic_id)
VALUES (%(projection)s, %(topic)s, %(partition)s, %(next_offset)s, %(topic_id)s)
ON CONFLICT DO NOTHING;

-- name: lock
-- Waits for any other holder, then sees what it committed.
SELECT next_offset, topic_id, scan_id, store_to
FROM inorder_projection
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s
FOR UPDATE;

-- name: lock_all
-- Before a reset, so that no instance is in the middle of a transaction.
SELECT partition FROM inorder_projection WHERE projection = %(projection)s ORDER BY topic, partition FOR UPDATE;

-- name: journals
-- What is known of some journals; ids is a JSON array.
SELECT id, seq_nr, delete_to, is_begun, life, applied
FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s
  AND id IN (SELECT json_array_elements_text(%(ids)s::json));

-- name: save_journals
-- rows is a JSON array of objects.
INSERT INTO inorder_projection_journal
    (projection, topic, partition, id, seq_nr, delete_to, is_begun, life, applied)
SELECT %(projection)s, %(topic)s, %(partition)s, r.id, r.seq_nr, r.delete_to, r.is_begun, r.life, r.applied
FROM json_to_recordset(%(rows)s::json)
    AS r(id text, seq_nr bigint, delete_to bigint, is_begun boolean, life text, applied bigint)
ON CONFLICT (projection, topic, partition, id) DO UPDATE
SET seq_nr = EXCLUDED.seq_nr, delete_to = EXCLUDED.delete_to, is_begun = EXCLUDED.is_begun, life = EXCLUDED.life,
    applied = EXCLUDED.applied;

-- name: remove_journals
-- Purged ones; ids is a JSON array.
DELETE FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND partition = %(partition)s
  AND id IN (SELECT json_array_elements_text(%(ids)s::json));
