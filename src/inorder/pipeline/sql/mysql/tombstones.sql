-- The statements of `inorder pipeline clean` on MySQL and MariaDB.

-- name: clock
-- Tombstones that were recorded before have seen no record that is not in the topics now.
SELECT UTC_TIMESTAMP(6) - INTERVAL %(margin)s SECOND;

-- name: first_mark
-- Unless there is one.
INSERT IGNORE INTO inorder_tombstone_mark (pipeline, before_at, ends) VALUES (%(pipeline)s, %(before_at)s, %(ends)s);

-- name: remove_useless
-- Some of them at a time, so that slices wait for none of these deletes for long.
DELETE FROM inorder_tombstone
WHERE pipeline = %(pipeline)s AND recorded_at < %(before_at)s
  AND (%(any_version)s OR (version_generation, version_offset) <= (%(generation)s, %(offset)s))
LIMIT 10000;
