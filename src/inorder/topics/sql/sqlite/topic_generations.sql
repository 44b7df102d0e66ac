-- name: install
-- One row a topic that was ever switched. The state is all of it, as JSON; the other columns are for people.
CREATE TABLE IF NOT EXISTS inorder_topic (
    topic      TEXT NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    phase      TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state      TEXT NOT NULL
);

-- name: insert
-- The first switch of a topic; a second one changes nothing.
INSERT INTO inorder_topic (topic, epoch, phase, generation, state)
VALUES (%(topic)s, %(epoch)s, %(phase)s, %(generation)s, %(state)s)
ON CONFLICT (topic) DO NOTHING;
