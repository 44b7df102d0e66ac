-- name: insert
-- A new data key; without a life it is for the append that is to begin one.
INSERT INTO inorder_journal_key (key_id, topic, id, life, log_partition, seen, secret)
VALUES (%(key_id)s, %(topic)s, %(id)s, %(life)s, %(partition)s, %(seen)s, %(secret)s);

-- name: read
SELECT secret FROM inorder_journal_key WHERE topic = %(topic)s AND id = %(id)s AND key_id = %(key_id)s;

-- name: of_life
SELECT key_id, secret FROM inorder_journal_key
WHERE topic = %(topic)s AND id = %(id)s AND life = %(life)s AND secret IS NOT NULL
ORDER BY key_id LIMIT 1;

-- name: adopt
-- The life that an append with this key has begun, and its place.
UPDATE inorder_journal_key SET life = %(life)s, log_partition = %(partition)s, seen = %(seen)s
WHERE topic = %(topic)s AND id = %(id)s AND key_id = %(key_id)s AND life IS NULL;

-- name: without_life
-- Keys for appends that are to begin a life, or whose writers died before they recorded it.
SELECT key_id, seen FROM inorder_journal_key
WHERE topic = %(topic)s AND id = %(id)s AND life IS NULL AND secret IS NOT NULL
  AND log_partition = %(partition)s AND seen < %(before)s;

-- name: destroy
UPDATE inorder_journal_key SET secret = NULL, destroyed = CURRENT_TIMESTAMP
WHERE topic = %(topic)s AND id = %(id)s AND key_id = %(key_id)s AND secret IS NOT NULL;

-- name: destroy_lives
-- The keys of a life, and of all lives that were there before an offset, but one.
UPDATE inorder_journal_key SET secret = NULL, destroyed = CURRENT_TIMESTAMP
WHERE topic = %(topic)s AND id = %(id)s AND secret IS NOT NULL
  AND (life = %(life)s OR (log_partition = %(partition)s AND seen < %(before)s AND life <> %(spared)s));
