-- The journal's tables as an audit reads them: everything that is there, visible or not.

-- name: waiting
SELECT id, "partition", "offset" FROM quarantine WHERE topic = %(topic)s AND id = ANY(%(ids)s);

-- name: rows
-- One page of a journal, along its key: a row is behind the last one of the page before.
SELECT segment, seq_nr, "timestamp", meta_record_id, "partition", "offset", origin, version, tags, metadata,
       payload_type, payload_txt, payload_bin, coalesce(headers, '{}')
FROM journal
WHERE topic = %(topic)s AND id = %(id)s
  AND (segment, seq_nr, "timestamp") > (%(segment)s, %(seq_nr)s, %(timestamp)s::timestamptz)
ORDER BY segment, seq_nr, "timestamp"
LIMIT %(limit)s;
