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

-- name: read_copies
SELECT source, source_id, destination_id FROM inorder_topic_copy WHERE destination = %(destination)s;

-- name: set_copy
-- An operator has accepted other topics of these names.
UPDATE inorder_topic_copy SET source_id = %(source_id)s, destination_id = %(destination_id)s
WHERE source = %(source)s AND destination = %(destination)s;
