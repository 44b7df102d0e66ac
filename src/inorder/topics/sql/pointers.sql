-- Pointers of pipelines, for the gate and for operators. In every dialect a word after a dot is a name, even if it is reserved
-- elsewhere.

-- name: of_pipeline
-- Every pointer of one pipeline: its topics are generations of one another, or the mapping named another one before.
SELECT p.topic, p.partition, p.next_offset, p.generation, p.topic_id, p.end_offset
FROM inorder_pointer p
WHERE p.pipeline = %(pipeline)s
ORDER BY p.topic, p.partition;

-- name: close_partition
-- No record at or above the end of a closed generation is applied, whatever a task still reads.
UPDATE inorder_pointer SET end_offset = %(end)s
WHERE inorder_pointer.topic = %(topic)s AND inorder_pointer.partition = %(partition)s
  AND (end_offset IS NULL OR end_offset <> %(end)s);

-- name: close_others
-- Partitions that were added to a closed generation hold nothing of it.
UPDATE inorder_pointer SET end_offset = 0
WHERE inorder_pointer.topic = %(topic)s AND inorder_pointer.partition >= %(count)s AND end_offset IS NULL;
