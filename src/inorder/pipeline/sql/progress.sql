-- name: progress
-- How far each partition of some pipelines is applied, and what its records became. In every dialect a word after a
-- dot is a name, even if it is reserved elsewhere.
SELECT p.pipeline, p.topic, p.partition, p.next_offset, p.records_applied, p.records_identical, p.records_stale,
       p.records_ignored, p.records_rejected, p.updated_at
FROM inorder_pointer p
WHERE p.pipeline = %(pipeline)s
ORDER BY 1, 2, 3;

-- name: ends
-- Where the closed generations of a pipeline end; nothing behind that is applied.
SELECT p.topic, p.partition, p.end_offset FROM inorder_pointer p
WHERE p.pipeline = %(pipeline)s AND p.end_offset IS NOT NULL;

-- name: waiting
-- The partitions that wait for their table: no slice was applied since.
SELECT p.topic, p.partition, p.waiting_since, p.waiting_for FROM inorder_pointer p
WHERE p.pipeline = %(pipeline)s AND p.waiting_since > p.updated_at
ORDER BY 1, 2;

-- name: unknown_fields
-- Which fields the mapping of a pipeline does not name, of each partition that had any.
SELECT p.unknown_fields FROM inorder_pointer p WHERE p.pipeline = %(pipeline)s AND p.unknown_fields IS NOT NULL;
