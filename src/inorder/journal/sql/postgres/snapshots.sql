-- Snapshots of journals. The table is made with the others of the journal.

-- name: rows
SELECT buffer_idx, seq_nr, "timestamp", "partition", "offset", meta_record_id
FROM snapshot WHERE topic = %(topic)s AND id = %(id)s;

-- name: load
SELECT seq_nr, "timestamp", origin, version, metadata, payload_type, payload_txt, payload_bin
FROM snapshot
WHERE topic = %(topic)s AND id = %(id)s AND buffer_idx = %(slot)s
  AND "partition" = %(partition)s AND "offset" = %(offset)s;

-- name: lock
-- Shared with all savers of the partition, against a purge that is being replicated; alone for the ring of this journal.
SELECT set_config('lock_timeout', '30s', true), set_config('idle_in_transaction_session_timeout', '10s', true),
       pg_advisory_xact_lock_shared(hashtextextended('inorder snapshots ' || %(partition)s::integer || ' ' || %(topic)s::text, 0)),
       pg_advisory_xact_lock(hashtextextended('inorder snapshot ' || %(topic)s::text || ' ' || %(id)s::text, 0));

-- name: life
-- How far the partition is replicated, and which life of the journal the store has; always one row.
SELECT p."offset", h.id IS NOT NULL, h.record_id
FROM (SELECT 1) AS one
LEFT JOIN pointer2 p ON p.topic = %(topic)s AND p."partition" = %(partition)s
LEFT JOIN metajournal h ON h.topic = %(topic)s AND h.id = %(id)s;

-- name: save
INSERT INTO snapshot (topic, id, buffer_idx, "partition", "offset", meta_record_id, seq_nr, "timestamp", origin,
                      version, metadata, payload_type, payload_txt, payload_bin)
VALUES (%(topic)s, %(id)s, %(slot)s, %(partition)s, %(offset)s, %(life)s, %(seq_nr)s, %(timestamp)s, %(origin)s,
        %(version)s, %(metadata)s, %(payload_type)s, %(payload_txt)s, %(payload_bin)s)
ON CONFLICT (topic, id, buffer_idx) DO UPDATE SET
    "partition" = excluded."partition",
    "offset" = excluded."offset",
    meta_record_id = excluded.meta_record_id,
    seq_nr = excluded.seq_nr,
    "timestamp" = excluded."timestamp",
    origin = excluded.origin,
    version = excluded.version,
    metadata = excluded.metadata,
    payload_type = excluded.payload_type,
    payload_txt = excluded.payload_txt,
    payload_bin = excluded.payload_bin;

-- name: delete
DELETE FROM snapshot WHERE topic = %(topic)s AND id = %(id)s AND buffer_idx = ANY(%(slots)s);
