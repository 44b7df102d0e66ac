-- name: read
-- One topic.
SELECT state FROM inorder_topic WHERE topic = %(topic)s;

-- name: read_all
-- All of them: a row for each topic that was ever switched, so few.
SELECT state FROM inorder_topic;

-- name: replace
-- Compare and set: the epoch before must be there.
UPDATE inorder_topic SET
    epoch = %(epoch)s, phase = %(phase)s, generation = %(generation)s, state = %(state)s
WHERE topic = %(topic)s AND epoch = %(epoch)s - 1;
