-- name: read
-- What is registered.
SELECT outbox, group_name, strategy, shards, epoch, state, target_group, target_strategy, target_shards
FROM inorder_relay WHERE outbox = %(outbox)s;

-- name: read_all
-- What is registered for every outbox table.
SELECT outbox, group_name, strategy, shards, epoch, state, target_group, target_strategy, target_shards
FROM inorder_relay;

-- name: begin_change
-- From now on every instance sees that the set-up changes, and into what; a change that began before is left alone.
UPDATE inorder_relay SET
    state = 'changing', epoch = epoch + 1,
    target_group = %(group)s, target_strategy = %(strategy)s, target_shards = %(shards)s
WHERE outbox = %(outbox)s AND state = 'steady';

-- name: finish_change
-- The target is what is registered; done again it does nothing. Some databases make assignments from left to
-- right, so the target is emptied last.
UPDATE inorder_relay SET
    group_name = target_group, strategy = target_strategy, shards = target_shards,
    state = 'steady', target_group = NULL, target_strategy = NULL, target_shards = NULL
WHERE outbox = %(outbox)s AND state = 'changing';

-- name: identity
-- The name of an outbox table.
SELECT identity FROM inorder_outbox WHERE outbox = %(outbox)s;
