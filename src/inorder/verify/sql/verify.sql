-- What a verification reads and removes of its own; every dialect understands it.

-- name: waiting
-- Rows that the relay has still to publish.
SELECT count(*) FROM {table} WHERE {topic} = %(topic)s AND {key} IN ({keys});

-- name: withdraw
-- Rows that nothing will publish any more.
DELETE FROM {table} WHERE {topic} = %(topic)s AND {key} IN ({keys});

-- name: exceeded
-- Rows that were set aside.
SELECT count(*) FROM inorder_exceeded WHERE outbox = %(outbox)s AND topic = %(topic)s AND {key_column} IN ({keys});

-- name: forget_exceeded
-- The same, removed.
DELETE FROM inorder_exceeded WHERE outbox = %(outbox)s AND topic = %(topic)s AND {key_column} IN ({keys});

-- name: forget_archived
-- Published rows that relay.retention_days keeps.
DELETE FROM {archive} WHERE topic = %(topic)s AND {key_column} IN ({keys});

-- name: forget_lock
-- The row of the strategy topic-lock for a topic that is deleted.
DELETE FROM {locks} WHERE topic = %(topic)s;

-- name: rows
-- The rows of all keys, in one snapshot.
SELECT {id}, {place} FROM {table} WHERE {id} IN ({ids});

-- name: delete_rows
-- The same, removed.
DELETE FROM {table} WHERE {id} IN ({ids});
