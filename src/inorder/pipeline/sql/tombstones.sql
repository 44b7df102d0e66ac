-- The statements of `inorder pipeline clean` that are the same in every dialect. A word after a dot is a name, even if it is
-- reserved elsewhere.

-- name: read_mark
-- The mark that was taken last.
SELECT before_at, ends FROM inorder_tombstone_mark WHERE pipeline = %(pipeline)s;

-- name: replace_mark
-- Another mark, unless somebody else has taken one meanwhile.
UPDATE inorder_tombstone_mark SET before_at = %(before_at)s, ends = %(ends)s
WHERE pipeline = %(pipeline)s AND before_at = %(seen)s;

-- name: count
-- All tombstones of a pipeline.
SELECT count(*) FROM inorder_tombstone WHERE pipeline = %(pipeline)s;

-- name: count_useless
-- Those that no record and no dead letter can be older than any more.
SELECT count(*) FROM inorder_tombstone t
WHERE t.pipeline = %(pipeline)s AND t.recorded_at < %(before_at)s
  AND (%(any_version)s OR (t.version_generation, t.version_offset) <= (%(generation)s, %(offset)s));

-- name: oldest_letter
-- The oldest dead letter: if it is retried, newer tombstones must be there.
SELECT d.generation, d.offset FROM inorder_dead_letter d WHERE d.pipeline = %(pipeline)s
ORDER BY d.generation, d.offset LIMIT 1;

-- name: remove_useless
-- Some of them at a time, so that slices wait for none of these deletes for long.
DELETE FROM inorder_tombstone
WHERE pipeline = %(pipeline)s AND {key} IN (
    SELECT t.{key} FROM inorder_tombstone t
    WHERE t.pipeline = %(pipeline)s AND t.recorded_at < %(before_at)s
      AND (%(any_version)s OR (t.version_generation, t.version_offset) <= (%(generation)s, %(offset)s))
    LIMIT 10000
);
