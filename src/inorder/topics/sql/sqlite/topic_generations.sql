-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      TEXT NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    phase      TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state      TEXT NOT NULL
);

-- name: install_copies
-- One row for each copy of a topic into another: Kafka's ids of both, since the offsets of a copy are of these two.
CREATE TABLE IF NOT EXISTS inorder_topic_copy (
    source         TEXT NOT NULL,
    destination    TEXT NOT NULL,
    source_id      TEXT,
    destination_id TEXT,
    PRIMARY KEY (source, destination)
);

-- name: install_pauses
-- One row for each topic, table or job that an operator has paused.
CREATE TABLE IF NOT EXISTS inorder_pause (
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    reason    TEXT NOT NULL,
    paused_by TEXT NOT NULL,
    paused_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (kind, name)
);

-- name: insert
-- The first switch of a topic; a second one changes nothing.
INSERT INTO inorder_topic (topic, epoch, phase, generation, state)
VALUES (%(topic)s, %(epoch)s, %(phase)s, %(generation)s, %(state)s)
ON CONFLICT (topic) DO NOTHING;

-- name: insert_copy
-- The first run of a copy; a second one changes nothing.
INSERT INTO inorder_topic_copy (source, destination, source_id, destination_id)
VALUES (%(source)s, %(destination)s, %(source_id)s, %(destination_id)s)
ON CONFLICT (source, destination) DO NOTHING;
