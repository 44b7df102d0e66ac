-- name: wake_up
-- The lock that a sleeping relay holds and the channel it listens on; publishers compute the same.
SELECT (1768845170::bigint << 32) | %(table)s::regclass::oid::bigint, 'inorder_' || %(table)s::regclass::oid;

-- name: begin_sleep
-- Fails while a publisher that did not mean to wake us is about to commit, and while another relay sleeps.
SELECT pg_try_advisory_lock(%(lock)s);

-- name: another_sleeps
-- Whether it was another relay: publishers share the lock, sleepers do not.
SELECT EXISTS (
  SELECT FROM pg_locks
  WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objsubid = 1
    AND classid = (%(lock)s::bigint >> 32)::oid AND objid = (%(lock)s::bigint & 4294967295)::oid
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
);

-- name: end_sleep
-- Publishers need not notify any more.
SELECT pg_advisory_unlock(%(lock)s);

-- name: hand_over
-- The same, and other sleepers read the table again and take the lock in our place.
SELECT pg_advisory_unlock(%(lock)s), pg_notify(%(channel)s, '');
