-- name: woken
-- A condition of an INSERT that is always true.
--
-- A sleeping relay holds the advisory lock of the table exclusively. The shared try fails only then, and only then is a
-- notification sent: NOTIFY in every transaction would halve the writers' commit rate. The shared lock is transaction-level
-- on purpose: it is held to the commit, so the relay cannot fall asleep between this test and our commit. The condition
-- refers to no row, so it is decided once a statement, before the first row is written.
--
-- PostgreSQL refuses PREPARE TRANSACTION after NOTIFY. A transaction that is to be prepared sets `inorder.wake` to `off` and
-- wakes nothing; a relay that sleeps finds its rows when it reads the table next.
(
  SELECT CASE
    WHEN current_setting('inorder.wake', true) = 'off' THEN true
    WHEN pg_try_advisory_xact_lock_shared((CAST(1768845170 AS bigint) << 32) | CAST(CAST(relation.name AS oid) AS bigint))
    THEN true
    ELSE pg_notify('inorder_' || CAST(CAST(relation.name AS oid) AS text), '') IS NOT NULL
  END
  FROM to_regclass('{table}') AS relation (name)
);
