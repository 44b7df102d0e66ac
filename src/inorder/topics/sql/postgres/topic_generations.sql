-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      text NOT NULL PRIMARY KEY,
    epoch      bigint NOT NULL,
    phase      text NOT NULL,
    generation integer NOT NULL,
    state      text NOT NULL
);

-- name: install_copies
-- One row for each copy of a topic into another: Kafka's ids of both, since the offsets of a copy are of these two.
CREATE TABLE IF NOT EXISTS inorder_topic_copy (
    source         text NOT NULL,
    destination    text NOT NULL,
    source_id      text,
    destination_id text,
    PRIMARY KEY (source, destination)
);

-- name: install_pauses
-- One row for each topic, table or job that an operator has paused.
CREATE TABLE IF NOT EXISTS inorder_pause (
    kind      text NOT NULL,
    name      text NOT NULL,
    reason    text NOT NULL,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
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
