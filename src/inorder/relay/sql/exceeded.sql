-- name: take_out
-- The outbox's side of the move.
DELETE FROM {table} WHERE {id} = %(id)s;

-- name: is_kept
-- A row if there is one of this id.
SELECT 1 FROM inorder_exceeded WHERE outbox = %(outbox)s AND id = %(id)s;

-- name: keep
-- Our side of the move.
INSERT INTO inorder_exceeded
    (outbox, id, topic, {key}, {value}, headers, {partition}, {timestamp},
     created_at, attempts, code, reason, parks, original)
VALUES
    (%(outbox)s, %(id)s, %(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s,
     %(created_at)s, %(attempts)s, %(code)s, %(reason)s, %(parks)s, %(original)s);

-- name: parked
-- Keys that wait, with the rows they wait for.
SELECT topic, {key}, id FROM inorder_exceeded
WHERE outbox = %(outbox)s AND parks AND {key} IS NOT NULL
ORDER BY id;

-- name: matching
-- The condition of all statements that take a filter; `any_…` is true for fields that match everything.
outbox = %(outbox)s
  AND (%(any_id)s OR id = %(id)s)
  AND (%(any_topic)s OR topic = %(topic)s)
  AND (%(any_key)s OR {key} = %(key)s)
  AND (%(any_code)s OR code = %(code)s)

-- name: list
-- Exceeded rows, oldest first.
SELECT id, topic, {key}, {value}, headers, {partition}, {timestamp}, created_at,
       attempts, code, reason, parks, exceeded_at, original
FROM inorder_exceeded
WHERE {matching}
ORDER BY id;

-- name: page
-- The next rows above an id, without their values, which may be large.
SELECT id, topic, {key}, NULL, headers, {partition}, {timestamp}, created_at,
       attempts, code, reason, parks, exceeded_at, NULL
FROM inorder_exceeded
WHERE id > %(above)s AND {matching}
ORDER BY id LIMIT %(most)s;

-- name: count
-- How many rows there are, counted up to a bound.
SELECT count(*) FROM (SELECT 1 FROM inorder_exceeded WHERE {matching} LIMIT %(most)s) AS counted;

-- name: groups
-- How many rows there are for each code and topic, and since when.
SELECT code, topic, count(*), min(exceeded_at)
FROM inorder_exceeded
WHERE {matching}
GROUP BY code, topic ORDER BY count(*) DESC, code, topic;

-- name: sizes
-- How many rows of each topic are exceeded, and how many of its keys wait for them.
SELECT topic, count(*), count(DISTINCT CASE WHEN parks THEN {key} END)
FROM inorder_exceeded
WHERE outbox = %(outbox)s
GROUP BY topic;

-- name: hold
-- Locks exceeded rows until the end of the transaction; a second operator waits, and finds none.
UPDATE inorder_exceeded SET parks = parks WHERE outbox = %(outbox)s AND id IN {listed};

-- name: take
-- Removes exceeded rows.
DELETE FROM inorder_exceeded WHERE outbox = %(outbox)s AND id IN {listed};

-- name: whereabouts
-- Which of some rows that were put back wait in the outbox, were set aside again, or were discarded after that.
SELECT 'waiting', {id} FROM {table} WHERE {id} IN {listed}
UNION ALL
SELECT 'refused again', id FROM inorder_exceeded WHERE outbox = %(outbox)s AND id IN {listed}
UNION ALL
SELECT 'discarded', id FROM inorder_exceeded_action
WHERE outbox = %(outbox)s AND action = 'discard' AND id IN {listed};
