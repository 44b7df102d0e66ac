-- The statements of `inorder pipeline clean` on PostgreSQL.

-- name: clock
-- Tombstones that were recorded before have seen no record that is not in the topics now.
SELECT now() - make_interval(secs => %(margin)s);

-- name: first_mark
-- Unless there is one.
INSERT INTO inorder_tombstone_mark (pipeline, before_at, ends) VALUES (%(pipeline)s, %(before_at)s, %(ends)s)
ON CONFLICT (pipeline) DO NOTHING;
