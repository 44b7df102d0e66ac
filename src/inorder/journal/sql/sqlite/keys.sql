-- name: install_journal_key
-- The data keys of journals, one for each life as a rule. A key that is destroyed has no secret.
CREATE TABLE IF NOT EXISTS inorder_journal_key (
    key_id        TEXT    NOT NULL,
    topic         TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    life          TEXT,
    log_partition INTEGER NOT NULL,
    seen          INTEGER NOT NULL,
    secret        BLOB,
    created       TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    destroyed     TEXT,
    PRIMARY KEY (topic, id, key_id)
);
