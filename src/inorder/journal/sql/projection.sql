-- Projections: how far each partition is, and what the projection knows of each journal. In every dialect a word after a dot is a
-- name, even if it is reserved elsewhere.

-- name: read
-- Where one partition is, without a lock.
SELECT next_offset, topic_id, scan_id, store_to
FROM inorder_projection
WHERE projection = %(projection)s AND topic = %(topic)s AND inorder_projection.partition = %(partition)s;

-- name: read_all
-- Every partition of a projection, for people.
SELECT p.topic, p.partition, p.next_offset, p.scan_id, p.failures, p.error
FROM inorder_projection p
WHERE p.projection = %(projection)s
ORDER BY p.topic, p.partition;

-- name: move
-- In the transaction of the handler's writes, after all of them; a commit ends the failures.
UPDATE inorder_projection
SET next_offset = %(next_offset)s, scan_id = %(scan_id)s, store_to = %(store_to)s, topic_id = %(topic_id)s,
    failures = 0, error = NULL, updated_at = CURRENT_TIMESTAMP
WHERE projection = %(projection)s AND topic = %(topic)s AND inorder_projection.partition = %(partition)s;

-- name: fail
-- For people and for status; nothing is decided by it.
UPDATE inorder_projection
SET failures = %(failures)s, error = %(error)s, updated_at = CURRENT_TIMESTAMP
WHERE projection = %(projection)s AND topic = %(topic)s AND inorder_projection.partition = %(partition)s;

-- name: ids_above
-- The journals of a partition that the projection knows, in the order of their ids.
SELECT id
FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND inorder_projection_journal.partition = %(partition)s
  AND id > %(id)s
ORDER BY id
LIMIT %(most)s;

-- name: forget_absent
-- Journals that the store did not have when it was read, once the log is past that place.
DELETE FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND inorder_projection_journal.partition = %(partition)s
  AND seq_nr = 0 AND applied < %(next_offset)s;

-- name: reset_journals
-- The rows of the partitions are locked before.
DELETE FROM inorder_projection_journal WHERE projection = %(projection)s;

-- name: reset
-- The projection begins again.
DELETE FROM inorder_projection WHERE projection = %(projection)s;
