-- name: install_exceeded
-- Outbox rows that used up their attempts: what would have been sent, for reading, and the whole row as it was.
CREATE TABLE IF NOT EXISTS inorder_exceeded (
    outbox      text NOT NULL,
    id          bigint NOT NULL,
    topic       text NOT NULL,
    "key"       bytea,
    "value"     bytea,
    headers     text,
    "partition" integer,
    "timestamp" bigint,
    created_at  timestamptz,
    attempts    integer NOT NULL,
    code        text NOT NULL,
    reason      text NOT NULL,
    parks       boolean NOT NULL,
    exceeded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    original    text,
    PRIMARY KEY (outbox, id)
);

-- name: install_exceeded_original
-- For tables made before whole rows were kept. Not a plain ADD COLUMN IF NOT EXISTS: that would wait for every open
-- transaction of the table only to find that there is nothing to do.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('inorder_exceeded') AND attname = 'original' AND NOT attisdropped
  ) THEN
    ALTER TABLE inorder_exceeded
      ADD COLUMN IF NOT EXISTS original text,
      ALTER COLUMN created_at DROP NOT NULL;
  END IF;
END
$$;

-- name: install_exceeded_action
-- What operators did with exceeded rows, and why.
CREATE TABLE IF NOT EXISTS inorder_exceeded_action (
    outbox   text NOT NULL,
    id       bigint NOT NULL,
    topic    text NOT NULL,
    "key"    bytea,
    action   text NOT NULL,
    reason   text NOT NULL,
    acted_by text NOT NULL DEFAULT current_user,
    acted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: install_exceeded_index
-- Lists by key and by code, for pages that must not read a million rows. Keys may be longer than an entry of an index,
-- so their hashes are in it. Only the owner of the table may create it; all works without it. Not a plain IF NOT EXISTS: that would
-- wait for every writer of the table only to find that there is nothing to do.
DO $$
BEGIN
  IF to_regclass('inorder_exceeded_topic') IS NULL THEN
    CREATE INDEX IF NOT EXISTS inorder_exceeded_code ON inorder_exceeded (outbox, code, id);
    CREATE INDEX IF NOT EXISTS inorder_exceeded_key ON inorder_exceeded (outbox, md5("key"), id);
    CREATE INDEX IF NOT EXISTS inorder_exceeded_topic ON inorder_exceeded (outbox, topic, id);
    ANALYZE inorder_exceeded;  -- the planner must know how few rows a key has
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  NULL;
END
$$;

-- name: matching
-- As in all dialects, with the hash that the index has.
outbox = %(outbox)s
  AND (%(any_id)s OR id = %(id)s)
  AND (%(any_topic)s OR topic = %(topic)s)
  AND (%(any_key)s OR (md5({key}) = md5(CAST(%(key)s AS bytea)) AND {key} = %(key)s))
  AND (%(any_code)s OR code = %(code)s)

-- name: find
-- When the row was written, and the row as its layout reads it, locked. Times that the driver cannot hold are left out;
-- `original` has them.
SELECT CASE WHEN {written_at} BETWEEN '0001-01-02' AND '9999-12-30' THEN {written_at} END, {columns}
FROM {table} WHERE {id} = %(id)s FOR UPDATE;

-- name: note_action
-- Who did what with which row, and why.
INSERT INTO inorder_exceeded_action (outbox, id, topic, "key", action, reason, acted_by)
VALUES (%(outbox)s, %(id)s, %(topic)s, %(key)s, %(action)s, %(reason)s, current_user);

-- name: put_back_fields
-- A row that was set aside before whole rows were kept; it can only be a native one.
INSERT INTO {table} (id, topic, "key", "value", headers, "partition", "timestamp", created_at)
OVERRIDING SYSTEM VALUE
VALUES (%(id)s, %(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s, %(created_at)s);

-- name: note_actions
-- The same for rows that are still among the exceeded ones.
INSERT INTO inorder_exceeded_action (outbox, id, topic, "key", action, reason, acted_by)
SELECT outbox, id, topic, "key", %(action)s, %(reason)s, current_user
FROM inorder_exceeded WHERE outbox = %(outbox)s AND id IN {listed} ORDER BY id;

-- name: listed
-- Ids that are given as JSON.
(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(%(ids)s AS json)))
