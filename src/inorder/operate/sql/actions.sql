-- The log of actions, where all dialects read alike.

-- name: begin
-- Before the action: what is not logged is not done.
INSERT INTO inorder_action (id, actor, origin, action, target, reason, state, outcome)
VALUES (%(id)s, %(actor)s, %(origin)s, %(action)s, %(target)s, %(reason)s, 'started', '');

-- name: finish
-- After the action.
UPDATE inorder_action SET state = %(state)s, outcome = %(outcome)s WHERE id = %(id)s;

-- name: page
-- The newest first, without their outcomes, which may be long.
SELECT id, acted_at, actor, origin, action, target, reason, state, ''
FROM inorder_action WHERE id < %(before)s ORDER BY id DESC LIMIT %(most)s;

-- name: one
-- One of them as a whole.
SELECT id, acted_at, actor, origin, action, target, reason, state, outcome FROM inorder_action WHERE id = %(id)s;
