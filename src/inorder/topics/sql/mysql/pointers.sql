-- name: exists
-- A row if the table is there.
SELECT 1 FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'inorder_pointer';

-- name: of_topic
-- How far each pipeline has applied a Kafka topic.
SELECT pipeline, `partition`, next_offset FROM inorder_pointer WHERE topic = %(topic)s;

-- name: begin
-- A partition of a later generation begins with that generation's number; a pointer that is there stays.
INSERT IGNORE INTO inorder_pointer (pipeline, topic, `partition`, generation, next_offset)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(generation)s, 0);

-- name: has_ends
-- A row if the table stores where generations end; that of version 0.1.0 does not.
SELECT 1 FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'inorder_pointer' AND column_name = 'end_offset';
