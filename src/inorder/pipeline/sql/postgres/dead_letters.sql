-- name: install_dead_letter_action
-- The actions of operators on dead letters, with the reason; batch is one command.
CREATE TABLE IF NOT EXISTS inorder_dead_letter_action (
    batch       text NOT NULL,
    pipeline    text NOT NULL,
    topic       text NOT NULL,
    "partition" integer NOT NULL,
    "offset"    bigint NOT NULL,
    generation  integer NOT NULL,
    code        text NOT NULL,
    "key"       bytea,
    action      text NOT NULL,
    reason      text NOT NULL,
    acted_by    text NOT NULL,
    acted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch, pipeline, topic, "partition", "offset")
);

-- name: install_dead_letter_index
-- Lists by key, code, topic and partition, and one letter by its place, for pages that must not read a million rows. Keys may be longer than an entry of an index,
-- so their hashes are in it. Only the owner of the table may create it; all works without it. Not a plain IF NOT EXISTS: that would
-- wait for every writer of the table only to find that there is nothing to do.
DO $$
BEGIN
  IF to_regclass('inorder_dead_letter_place') IS NULL THEN
    CREATE INDEX IF NOT EXISTS inorder_dead_letter_code ON inorder_dead_letter (code, pipeline, topic, "partition", "offset");
    CREATE INDEX IF NOT EXISTS inorder_dead_letter_key ON inorder_dead_letter (md5("key"), pipeline, topic, "partition", "offset");
    CREATE INDEX IF NOT EXISTS inorder_dead_letter_partition ON inorder_dead_letter ("partition", pipeline, topic, "offset");
    CREATE INDEX IF NOT EXISTS inorder_dead_letter_place ON inorder_dead_letter (topic, "partition", "offset");
    ANALYZE inorder_dead_letter;  -- the planner must know how few rows a key has
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  NULL;
END
$$;

-- name: matching
-- As in all dialects, with the hash that the index has.
(%(any_pipeline)s OR pipeline = %(pipeline)s)
  AND (%(any_topic)s OR topic = %(topic)s)
  AND (%(any_partition)s OR {partition} = %(partition)s)
  AND (%(any_offset)s OR {offset} = %(offset)s)
  AND (%(any_code)s OR code = %(code)s)
  AND (%(any_key)s OR (md5({key}) = md5(CAST(%(key)s AS bytea)) AND {key} = %(key)s))

-- name: actor
-- The database user.
current_user

-- name: for_update
-- A second transaction waits, and finds nothing.
FOR UPDATE
