-- name: install_exceeded
-- Outbox rows that used up their attempts, as they were, with the reason.
CREATE TABLE IF NOT EXISTS inorder_exceeded (
    outbox      text        NOT NULL,
    id          bigint      NOT NULL,
    topic       text        NOT NULL,
    key         bytea,
    value       bytea,
    headers     text,
    "partition" integer,
    "timestamp" bigint,
    created_at  timestamptz NOT NULL,
    attempts    integer     NOT NULL,
    code        text        NOT NULL,
    reason      text        NOT NULL,
    parks       boolean     NOT NULL,
    exceeded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, id)
);

-- name: install_exceeded_action
-- What people did with exceeded rows, and why.
CREATE TABLE IF NOT EXISTS inorder_exceeded_action (
    outbox   text        NOT NULL,
    id       bigint      NOT NULL,
    topic    text        NOT NULL,
    key      bytea,
    action   text        NOT NULL,
    reason   text        NOT NULL,
    acted_by text        NOT NULL DEFAULT current_user,
    acted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: exceed
-- Moves one row out of the outbox; a row that is gone already is left alone.
WITH gone AS (
    DELETE FROM {table} WHERE id = %(id)s
    RETURNING id, topic, key, value, headers, "partition", "timestamp", created_at
)
INSERT INTO inorder_exceeded
    (outbox, id, topic, key, value, headers, "partition", "timestamp", created_at, attempts, code, reason, parks)
SELECT %(outbox)s, id, topic, key, value, headers, "partition", "timestamp", created_at,
       %(attempts)s, %(code)s, %(reason)s, %(parks)s
FROM gone
ON CONFLICT (outbox, id) DO NOTHING;

-- name: parked
-- Keys that wait, with the rows they wait for.
SELECT topic, key, array_agg(id ORDER BY id) FROM inorder_exceeded
WHERE outbox = %(outbox)s AND parks AND key IS NOT NULL
GROUP BY topic, key;

-- name: list
-- Exceeded rows, oldest first; a filter that is null matches everything.
SELECT id, topic, key, value, headers, "partition", "timestamp", created_at, attempts, code, reason, parks, exceeded_at
FROM inorder_exceeded
WHERE outbox = %(outbox)s
  AND (%(id)s::bigint IS NULL OR id = %(id)s)
  AND (%(topic)s::text IS NULL OR topic = %(topic)s)
  AND (%(key)s::bytea IS NULL OR key = %(key)s)
  AND (%(code)s::text IS NULL OR code = %(code)s)
ORDER BY id;

-- name: take
-- Locks and removes exceeded rows; whoever comes second finds none.
DELETE FROM inorder_exceeded WHERE outbox = %(outbox)s AND id = ANY(%(ids)s)
RETURNING id, topic, key, value, headers, "partition", "timestamp", created_at;

-- name: put_back
-- Under its old id, so that it stands before everything of its key that waited for it.
INSERT INTO {table} (id, topic, key, value, headers, "partition", "timestamp", created_at)
OVERRIDING SYSTEM VALUE
VALUES (%(id)s, %(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s, %(created_at)s);

-- name: note_action
-- Who did what with which row, and why.
INSERT INTO inorder_exceeded_action (outbox, id, topic, key, action, reason)
VALUES (%(outbox)s, %(id)s, %(topic)s, %(key)s, %(action)s, %(reason)s);
