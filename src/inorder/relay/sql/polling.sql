-- Offset, missing and exceeded events of the trendyol layout, where all dialects read alike. Tables that the original's script
-- made have no primary keys and may name an id twice. {now} is the present in UTC, {among} is "in a list of ids",
-- {ids} is such a list as a table with the column listed_id, {reasons} one with the columns listed_id and reason.

-- name: check_events
-- Fails unless the columns are there.
SELECT {columns}, {written_at} FROM {table} WHERE 1 = 0;

-- name: check_missing
-- Fails unless the columns are there.
SELECT id, missed_date, retry_count, exception_thrown FROM {missing} WHERE 1 = 0;

-- name: check_exceeded
-- Fails unless the columns are there.
SELECT id, missed_date, retry_count, exception_thrown, exceeded_date, reason FROM {exceeded} WHERE 1 = 0;

-- name: offset
-- There must be one row; a second one is enough to notice a mistake.
SELECT {offset_column} FROM {offset} LIMIT 2;

-- name: move
-- Finds the row only where it says what the caller expects, and keeps others from moving it until the transaction ends.
UPDATE {offset} SET {offset_column} = %(to)s WHERE {offset_column} = %(from)s;

-- name: missing
-- A page of missing ids.
SELECT id, COALESCE(MAX(retry_count), 0), MAX(CASE WHEN exception_thrown THEN 1 ELSE 0 END), MIN(missed_date)
FROM {missing} WHERE id > %(above)s GROUP BY id ORDER BY id LIMIT %(limit)s;

-- name: miss
-- Adds ids that are not there yet.
INSERT INTO {missing} (id, missed_date, retry_count, exception_thrown)
SELECT listed_id, {now}, %(retry_count)s, %(exception_thrown)s FROM {ids}
WHERE listed_id NOT IN (SELECT id FROM {missing} WHERE id IS NOT NULL);

-- name: fail
-- One more attempt, which the broker refused.
UPDATE {missing} SET retry_count = COALESCE(retry_count, 0) + 1, exception_thrown = TRUE WHERE id {among};

-- name: wait
-- One more attempt.
UPDATE {missing} SET retry_count = COALESCE(retry_count, 0) + 1 WHERE id {among};

-- name: leave_missing
-- Delivered, given up, or never committed.
DELETE FROM {missing} WHERE id {among};

-- name: leave_exceeded
-- Delivered after all, or settled by an operator.
DELETE FROM {exceeded} WHERE id {among};

-- name: forget_exceeded
-- What is about to be exceeded again; its earlier record is replaced.
DELETE FROM {exceeded} WHERE id {among} AND id IN (SELECT id FROM {missing} WHERE id {among});

-- name: exceed
-- Gives up ids that are missing.
INSERT INTO {exceeded} (id, missed_date, retry_count, exception_thrown, exceeded_date, reason)
SELECT listed_id, missed, retries, thrown = 1, {now}, reason
FROM {reasons}
JOIN (
  SELECT id, MIN(missed_date) AS missed, COALESCE(MAX(retry_count), 0) AS retries,
         MAX(CASE WHEN exception_thrown THEN 1 ELSE 0 END) AS thrown
  FROM {missing} WHERE id {among} GROUP BY id
) AS given_up ON given_up.id = listed_id;

-- name: parked
-- Keys of what was exceeded; the original left no reasons.
SELECT {topic}, {key}, {id} FROM {table}
WHERE {id} IN (SELECT id FROM {exceeded} WHERE reason IS NOT NULL) AND {key} IS NOT NULL
ORDER BY {id};

-- name: exceeded_count
-- How many events are exceeded.
SELECT COUNT(DISTINCT id) FROM {exceeded};

-- name: state
-- How far it is, and what is left over.
SELECT
  (SELECT MAX({offset_column}) FROM {offset}),
  COALESCE((SELECT MAX({id}) FROM {table}), 0),
  (SELECT COUNT(DISTINCT id) FROM {missing}),
  (SELECT COUNT(DISTINCT id) FROM {exceeded}),
  (SELECT MIN(missed_date) FROM {missing}),
  (SELECT COUNT(*) FROM {table} WHERE {id} > (SELECT MAX({offset_column}) FROM {offset}));

-- name: published
-- A row that is published and still there, if there is one.
SELECT {id} FROM {table}
WHERE {id} <= (SELECT MAX({offset_column}) FROM {offset})
  AND {id} NOT IN (SELECT id FROM {missing} WHERE id IS NOT NULL)
  AND {id} NOT IN (SELECT id FROM {exceeded} WHERE id IS NOT NULL)
ORDER BY {id} LIMIT 1;

-- name: gone
-- Exceeded events, each once.
(
  SELECT id AS gone_id, COALESCE(MAX(retry_count), 0) AS retries,
         COALESCE(MAX(exceeded_date), MAX(missed_date)) AS gone_at, MAX(reason) AS gone_reason
  FROM {exceeded} GROUP BY id
) AS gone

-- name: matching
-- `any_…` is true for fields that match everything.
(%(any_id)s OR gone_id = %(id)s)
  AND (%(any_topic)s OR topic = %(topic)s)
  AND (%(any_key)s OR {key} = %(key)s)
  AND (%(any_code)s OR gone_reason LIKE %(code)s)

-- name: list
-- Exceeded events, oldest first, each with its row where there is one.
SELECT gone_id, retries, gone_at, gone_reason, {written_at}, {columns}
FROM {gone} LEFT JOIN {table} ON {id} = gone_id
WHERE {matching}
ORDER BY gone_id;

-- name: page
-- The next of them above an id.
SELECT gone_id, retries, gone_at, gone_reason, {written_at}, {columns}
FROM {gone} LEFT JOIN {table} ON {id} = gone_id
WHERE gone_id > %(above)s AND {matching}
ORDER BY gone_id LIMIT %(most)s;

-- name: groups
-- How many there are for each code and topic, and since when.
SELECT {code_of}, topic, count(*), MIN(gone_at)
FROM {gone} LEFT JOIN {table} ON {id} = gone_id
WHERE {matching}
GROUP BY 1, 2 ORDER BY count(*) DESC, 1, 2;

-- name: whereabouts
-- Which of some events that were made missing again are so still, are exceeded again, or were discarded after that.
SELECT 'waiting', id FROM {missing} WHERE id {among}
UNION ALL
SELECT 'refused again', id FROM {exceeded} WHERE id {among}
UNION ALL
SELECT 'discarded', id FROM inorder_exceeded_action WHERE outbox = %(outbox)s AND action = 'discard' AND id {among};
