-- Dead letters for operators; the pipeline's own statements are in table.sql. `any_…` is true if the filter is not set.

-- name: matching
-- The condition of all statements that take a filter.
(%(any_pipeline)s OR pipeline = %(pipeline)s)
  AND (%(any_topic)s OR topic = %(topic)s)
  AND (%(any_partition)s OR {partition} = %(partition)s)
  AND (%(any_offset)s OR {offset} = %(offset)s)
  AND (%(any_code)s OR code = %(code)s)
  AND (%(any_key)s OR {key} = %(key)s)

-- name: at
-- One letter, by its primary key.
pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s AND {offset} = %(offset)s

-- name: counts
-- The number of letters, by code.
SELECT code, count(*) FROM inorder_dead_letter WHERE {matching} GROUP BY code ORDER BY count(*) DESC, code;

-- name: count
-- The number of letters, counted up to a bound.
SELECT count(*) FROM (SELECT 1 FROM inorder_dead_letter WHERE {matching} LIMIT %(most)s) AS counted;

-- name: places
-- The partitions that have letters.
SELECT DISTINCT pipeline, topic, {partition} FROM inorder_dead_letter WHERE {matching}
ORDER BY pipeline, topic, {partition};

-- name: page
-- Letters of one partition in offset order; the primary key finds the next page.
SELECT pipeline, topic, {partition}, {offset}, generation, code, detail, {key}, {value}, record_timestamp, recorded_at
FROM inorder_dead_letter
WHERE pipeline = %(at_pipeline)s AND topic = %(at_topic)s AND {partition} = %(at_partition)s AND {offset} > %(above)s
  AND {matching}
ORDER BY {offset} LIMIT %(most)s;

-- name: after
-- Letters of all partitions in the order of the primary key, behind one of them.
SELECT pipeline, topic, {partition}, {offset}, generation, code, detail, {key}, {value}, record_timestamp, recorded_at
FROM inorder_dead_letter
WHERE (pipeline, topic, {partition}, {offset})
    > (%(after_pipeline)s, %(after_topic)s, %(after_partition)s, %(after_offset)s)
  AND {matching}
ORDER BY pipeline, topic, {partition}, {offset} LIMIT %(most)s;

-- name: groups
-- How many letters there are for each pipeline, topic and code, and since when.
SELECT pipeline, topic, code, count(*), min(recorded_at) FROM inorder_dead_letter WHERE {matching}
GROUP BY pipeline, topic, code ORDER BY count(*) DESC, pipeline, topic, code;

-- name: never_applied
-- The records of a partition that are in no table.
SELECT {offset} FROM inorder_dead_letter
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s AND {offset} > %(above)s
UNION
SELECT {offset} FROM inorder_dead_letter_action
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s AND {offset} > %(above)s
  AND action = 'discard';

-- name: newest_generation
-- The newest generation that a pipeline has read.
SELECT max(generation) FROM inorder_pointer WHERE pipeline = %(pipeline)s;

-- name: note
-- Records the action on each letter; locks the letters, so that only one of two concurrent actions finds them.
INSERT INTO inorder_dead_letter_action
    (batch, pipeline, topic, {partition}, {offset}, generation, code, {key}, action, reason, acted_by)
SELECT %(batch)s, pipeline, topic, {partition}, {offset}, generation, code, {key}, %(action)s, %(reason)s, {actor}
FROM inorder_dead_letter WHERE {condition} {for_update};

-- name: settled
-- The letters of one action, the first of them.
SELECT pipeline, topic, {partition}, {offset}, code, {key} FROM inorder_dead_letter_action
WHERE batch = %(batch)s ORDER BY pipeline, topic, {partition}, {offset} LIMIT %(most)s;

-- name: take
-- Deletes exactly the recorded letters; a letter that arrived in between stays.
DELETE FROM inorder_dead_letter
WHERE EXISTS (
    SELECT 1 FROM inorder_dead_letter_action noted
    WHERE noted.batch = %(batch)s
      AND noted.pipeline = inorder_dead_letter.pipeline
      AND noted.topic = inorder_dead_letter.topic
      AND noted.{partition} = inorder_dead_letter.{partition}
      AND noted.{offset} = inorder_dead_letter.{offset}
) AND {condition};
