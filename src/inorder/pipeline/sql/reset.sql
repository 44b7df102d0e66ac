-- The statements of `inorder pipeline reset`. In every dialect a word after a dot is a name, even if it is reserved elsewhere.

-- name: set_pointer
-- Writes a pointer unless it moved since it was read.
UPDATE inorder_pointer SET
    generation      = %(generation)s,
    next_offset     = %(next_offset)s,
    topic_id        = %(topic_id)s,
    end_offset      = %(end_offset)s,
    leader_epoch    = NULL,
    leader_epoch_at = NULL
WHERE inorder_pointer.pipeline = %(pipeline)s AND inorder_pointer.topic = %(topic)s
  AND inorder_pointer.partition = %(partition)s
  AND inorder_pointer.next_offset = %(seen_offset)s AND inorder_pointer.generation = %(seen_generation)s;

-- name: delete_pointer
-- Deletes the pointer of a partition that does not exist any more, unless it moved.
DELETE FROM inorder_pointer
WHERE inorder_pointer.pipeline = %(pipeline)s AND inorder_pointer.topic = %(topic)s
  AND inorder_pointer.partition = %(partition)s
  AND inorder_pointer.next_offset = %(seen_offset)s AND inorder_pointer.generation = %(seen_generation)s;

-- name: keep_letters
-- Keeps the dead letters of the former incarnation under another name; the new one uses their coordinates again.
UPDATE inorder_dead_letter SET topic = %(kept_as)s
WHERE inorder_dead_letter.pipeline = %(pipeline)s AND inorder_dead_letter.topic = %(topic)s
  AND inorder_dead_letter.partition = %(partition)s;

-- name: keep_actions
-- The same for what was done with dead letters.
UPDATE inorder_dead_letter_action SET topic = %(kept_as)s
WHERE inorder_dead_letter_action.pipeline = %(pipeline)s AND inorder_dead_letter_action.topic = %(topic)s
  AND inorder_dead_letter_action.partition = %(partition)s;
