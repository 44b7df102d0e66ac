-- name: install_journal_key
-- The data keys of journals, one for each life as a rule. A key that is destroyed has no secret.
CREATE TABLE IF NOT EXISTS inorder_journal_key (
    key_id        text        NOT NULL,
    topic         text        NOT NULL,
    id            text        NOT NULL,
    life          text,
    log_partition integer     NOT NULL,
    seen          bigint      NOT NULL,
    secret        bytea,
    created       timestamptz NOT NULL DEFAULT now(),
    destroyed     timestamptz,
    PRIMARY KEY (topic, id, key_id)
);
